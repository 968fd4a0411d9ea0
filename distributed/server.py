"""The hub as a server that collectors and the learner find through a file in the run's folder. gRPC carries the bytes
(why: docs/distributed.md); ``distributed/wire.py`` says what they mean.

Who knows the token in that file, which only its owner can read, may call; so on one machine or in a cluster nobody else
can add experience. The traffic is not encrypted.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from distributed.hub import Finished, Hub, Unpublished
from distributed.wire import WireError, pack, unpack

SERVICE = "envolve.Hub"
METHODS = ("begin", "publish", "ready", "has", "sample", "checkpoint", "finish", "progress", "pull", "append")
RAISED: dict[str, type[Exception]] = {"Finished": Finished, "Unpublished": Unpublished}
ADDRESS = "hub.json"
WILDCARDS = ("0.0.0.0", "[::]")
TOKEN = "token"  # in the metadata of a call
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
GRACE = 1.0  # s, for calls under way when the server ends


def write_private(path: Path, text: str) -> None:
    """Atomic, and for its owner alone. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    os.replace(temporary, path)


class HubServer:
    """Serves from the moment it is made."""

    def __init__(self, hub: Hub, folder: Path, bind: str = "127.0.0.1") -> None:
        """bind: the address to listen at, and that others are told; of "all of this machine's" (0.0.0.0, [::]) they are
        told its host name. Raises OSError."""
        self.hub, self.token = hub, secrets.token_hex(16)
        # a call that waits keeps a thread; collectors wait most of the time
        self.server = grpc.server(ThreadPoolExecutor(hub.workers + 6), options=OPTIONS)
        handlers = {name: grpc.unary_unary_rpc_method_handler(self._handler(name)) for name in METHODS}
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            port = self.server.add_insecure_port(f"{bind}:0")
        except RuntimeError as e:
            raise OSError(f"cannot listen at {bind}: {e}") from None
        self.server.start()
        host = socket.gethostname() if bind in WILDCARDS else bind
        write_private(folder / ADDRESS, json.dumps({"address": f"{host}:{port}", TOKEN: self.token}) + "\n")

    def _handler(self, name: str) -> Callable[[bytes, Any], bytes]:
        method = getattr(self.hub, name)

        def handle(request: bytes, context: Any) -> bytes:
            given = dict(context.invocation_metadata()).get(TOKEN, "")
            if not hmac.compare_digest(str(given), self.token):
                context.abort(grpc.StatusCode.UNAUTHENTICATED, f"not the token of {ADDRESS}")
            try:
                return pack([method(*unpack(request))])
            except (Finished, Unpublished) as e:
                return pack(type(e).__name__)
            except (WireError, ValueError, TypeError, AttributeError, RuntimeError) as e:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{name}: {type(e).__name__}: {e}")
            raise AssertionError  # abort has raised

        return handle

    def close(self) -> None:
        self.server.stop(GRACE).wait()
