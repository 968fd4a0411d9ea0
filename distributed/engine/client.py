"""Remote hub: the same methods over gRPC. A call without a reachable hub waits for its return."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from envolve.core.cleaning import one_line
from envolve.core.files import read_text
from envolve.distributed.engine.calls import PATIENCE, HubCalls, HubTrouble
from envolve.distributed.engine.hub import Finished
from envolve.distributed.engine.limits import CALLS
from envolve.distributed.engine.server import ADDRESS, CODE, OPTIONS, SERVICE, TOKEN
from envolve.distributed.files.run_folder import is_done
from envolve.outer.checkpoint import RunError
from envolve.outer.exchange.sources import sources

log = logging.getLogger("envolve")

CALL_SECONDS = 60.0  # s that a call may take beside what it waits for: the hub of then may hang
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAUTHENTICATED)


class RemoteHub(HubCalls):
    """Client of the hub. Once the run is complete, what finds no hub raises Finished."""

    def __init__(self, folder: Path, patience: float = PATIENCE) -> None:
        """folder: folder of the run."""
        self.path, self.patience, self.over = folder / ADDRESS, patience, partial(is_done, folder)
        self.known: dict[str, str] = {}  # what the file said when the channel was made
        self.channel: grpc.Channel | None = None
        self.calls: dict[str, Any] = {}
        self.told = ""  # other code that was spoken of

    def _connect(self) -> None:
        """Connects to the address in the hub's file. Raises HubTrouble."""
        try:
            found = json.loads(read_text(self.path))
        except (OSError, ValueError):  # none, or of a hub that is being made
            raise HubTrouble(f"no hub is named in {self.path}") from None
        if type(found) is not dict or not all(type(found.get(key)) is str for key in ("address", TOKEN)):
            raise HubTrouble(f"{self.path}: found no address and {TOKEN} of a hub")
        # a proxy of the web is none of a cluster
        self.channel = grpc.insecure_channel(found["address"], options=[*OPTIONS, ("grpc.enable_http_proxy", 0)])
        self.calls = {name: self.channel.unary_unary(f"/{SERVICE}/{name}") for name in CALLS}
        self.known = found
        mine, its = sources("distributed"), one_line(str(found.get(CODE, "unknown")), 40)
        if its not in (mine, self.told):
            self.told = its
            words = "the hub of %s runs other code (%s) than this program (%s): start both from one version"
            log.error(words, self.path, its, mine)

    def _ask(self, name: str, request: bytes, wait: float) -> bytes:
        if self.channel is None:
            if self.over():  # its hub does not come back
                raise Finished
            self._connect()
        where, metadata = f"the hub at {self.known['address']}", ((TOKEN, self.known[TOKEN]),)
        try:
            answer: bytes = self.calls[name](request, timeout=wait + CALL_SECONDS, metadata=metadata)
        except grpc.RpcError as e:
            if e.code() == grpc.StatusCode.INTERNAL:  # its disk is full, say; it goes on
                raise HubTrouble(f"{where} fails: {e.details()}") from None
            if e.code() in AGAIN:
                self.close()
                raise HubTrouble(f"{where} does not answer ({e.code().name})") from None
            raise RunError(f"{where} refused: {e.details()}") from None
        return answer

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
        self.channel, self.known = None, {}
