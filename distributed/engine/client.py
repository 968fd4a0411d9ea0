"""Remote hub: the same methods over gRPC. A call without a reachable hub waits for its return."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import grpc

from envolve.core.files import read_text
from envolve.distributed.engine.calls import PATIENCE, PAUSE, RAISED, HubCalls, HubGone
from envolve.distributed.engine.limits import CALLS
from envolve.distributed.engine.server import ADDRESS, OPTIONS, SERVICE, TOKEN
from envolve.distributed.engine.wire import pack, unpack
from envolve.outer.checkpoint import RunError

CALL_SECONDS = 60.0  # s that a call may take beside what it waits for: the hub of then may hang
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAUTHENTICATED)


class RemoteHub(HubCalls):
    """Client of the hub."""

    def __init__(self, folder: Path, patience: float = PATIENCE) -> None:
        """folder: folder of the run."""
        self.path, self.patience = folder / ADDRESS, patience
        self.known: dict[str, str] = {}  # what the file said when the channel was made
        self.channel: grpc.Channel | None = None
        self.calls: dict[str, Any] = {}

    def _connect(self) -> None:
        """Connects to the address in the hub's file. Raises OSError, ValueError for an unusable file."""
        found = json.loads(read_text(self.path))
        if found == self.known:
            return
        self.close()
        # a proxy of the web is none of a cluster
        self.channel = grpc.insecure_channel(found["address"], options=[*OPTIONS, ("grpc.enable_http_proxy", 0)])
        self.calls = {name: self.channel.unary_unary(f"/{SERVICE}/{name}") for name in CALLS}
        self.known = found

    def _call(self, name: str, *args: Any, wait: float = 0.0) -> Any:
        """Calls a method of the hub. Raises HubGone, RunError, and what the hub's method raises."""
        request, deadline = pack(args), time.monotonic() + self.patience
        while True:
            try:
                if self.channel is None:
                    self._connect()
                metadata = ((TOKEN, self.known[TOKEN]),)
                reply = unpack(self.calls[name](request, timeout=wait + CALL_SECONDS, metadata=metadata))
                break
            except (OSError, ValueError):  # no file, or of a hub that is being made
                what = f"no hub is named in {self.path}"
            except grpc.RpcError as e:
                where, code = f"the hub at {self.known['address']}", e.code()
                if code == grpc.StatusCode.INTERNAL:  # its disk is full, say; it goes on
                    what = f"{where} fails: {e.details()}"
                elif code in AGAIN:
                    what = f"{where} does not answer ({code.name})"
                    self.close()
                else:
                    raise RunError(f"{where} refused: {e.details()}") from None
            if time.monotonic() > deadline:
                raise HubGone(f"{what}, for {self.patience:.0f} s")
            time.sleep(PAUSE)
        if isinstance(reply, str):
            raise RAISED[reply]
        return reply[0]

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        self.channel, self.known = None, {}
