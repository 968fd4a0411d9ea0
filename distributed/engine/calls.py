"""Methods of a hub that is elsewhere, whatever carries the calls: ``client.py`` (gRPC), ``distributed/ray/hub.py``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from envolve.distributed.engine.hub import Finished, Unpublished
from envolve.distributed.memory.rows import Chunk, Counters, Handout

PATIENCE = 300.0  # s without a hub that works: a memory of gigabytes is read again after a death
PAUSE = 0.1  # s between two tries
RAISED: dict[str, type[Exception]] = {"Finished": Finished, "Unpublished": Unpublished}


class HubGone(Exception):
    """Raised if the hub stays unreachable for too long."""


class HubCalls:
    """See ``distributed/engine/hub.py``. All calls may be repeated: the hub does nothing a second time."""

    def _call(self, name: str, *args: Any, wait: float = 0.0) -> Any:
        """wait: seconds that the hub may wait before it answers."""
        raise NotImplementedError

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
