"""Methods of a hub that is elsewhere, whatever carries the calls: ``client.py`` (gRPC), ``distributed/ray/hub.py``."""

from __future__ import annotations

import logging
import time
from typing import Any

from torch import Tensor

from envolve.distributed.engine.hub import Finished, Unpublished
from envolve.distributed.engine.wire import WireError, pack, unpack
from envolve.distributed.memory.rows import Chunk, Counters, Handout
from envolve.outer.checkpoint import RunError

log = logging.getLogger("envolve")

PATIENCE = 300.0  # s without a hub that works: a memory of gigabytes is read again after a death
PAUSE = 0.1  # s between two tries
QUIET = 5.0  # s of waiting until it is said
RAISED: dict[str, type[Exception]] = {"Finished": Finished, "Unpublished": Unpublished}


class HubGone(Exception):
    """Raised if the hub stays unreachable for too long."""


class HubTrouble(Exception):
    """Raised for a hub that cannot answer now; the text says which, and why."""


class HubCalls:
    """See ``distributed/engine/hub.py``. All calls may be repeated: the hub does nothing a second time.

    ``patience``: seconds without an answer until the hub counts as gone.
    """

    patience = PATIENCE

    def _ask(self, name: str, request: bytes, wait: float) -> bytes:
        """The hub's answer. wait: seconds that it may wait before. Raises HubTrouble: later, perhaps; HubGone: never;
        RunError: it refused."""
        raise NotImplementedError

    def _call(self, name: str, *args: Any, wait: float = 0.0) -> Any:
        """Calls a method of the hub, and waits for one in trouble. Raises HubGone, RunError, and what the hub's method
        raises."""
        request, began, said = pack(args), time.monotonic(), False
        while True:
            try:
                reply = unpack(self._ask(name, request, wait))
                break
            except WireError as e:
                words = "is it of another version?"
                raise RunError(f"the hub's answer to {name} is no message ({e}): {words}") from None
            except HubTrouble as e:
                waited = time.monotonic() - began
                if waited > self.patience:
                    raise HubGone(f"{e}, for {self.patience:.0f} s") from None
                if waited > QUIET and not said:
                    said = True
                    log.warning("%s; waiting for it, %.0f s at most", e, self.patience)
            time.sleep(PAUSE)
        if isinstance(reply, str):
            raise RAISED[reply]
        return reply[0]

    def begin(self, session: int, version: int) -> None:
        self._call("begin", session, version)

    def publish(self, session: int, version: int, policy: Tensor, timeout: float) -> bool:
        return bool(self._call("publish", session, version, policy, timeout, wait=timeout))

    def ready(self, session: int, version: int, timeout: float) -> bool:
        return bool(self._call("ready", session, version, timeout, wait=timeout))

    def has(self, version: int) -> bool:
        return bool(self._call("has", version))

    def sample(self, first: int, count: int) -> Tensor:
        found: Tensor = self._call("sample", first, count)
        return found

    def checkpoint(self) -> None:
        self._call("checkpoint")

    def finish(self) -> None:
        self._call("finish")

    def progress(self) -> Counters:
        found: Counters = self._call("progress")
        return found

    def pull(self, worker: int, timeout: float) -> Handout | None:
        found: Handout | None = self._call("pull", worker, timeout, wait=timeout)
        return found

    def append(self, chunk: Chunk) -> bool:
        return bool(self._call("append", chunk))
