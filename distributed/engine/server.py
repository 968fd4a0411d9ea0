"""gRPC server of the hub, found by collectors and learner through a file in the run's folder (docs/distributed.md).
``distributed/engine/wire.py`` defines the messages.

Only callers with the token in that file, which is readable by its owner alone, are served; so nobody else on the
machine or in the cluster can add transitions. The traffic is not encrypted.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from envolve.core.cleaning import one_line
from envolve.distributed.engine.hub import Finished, Hub, Unpublished
from envolve.distributed.engine.limits import CALLS, MOST_WAIT
from envolve.distributed.engine.wire import WireError, pack, unpack
from envolve.outer.exchange.sources import sources

log = logging.getLogger("envolve")

SERVICE = "envolve.Hub"
ADDRESS = "hub.json"
WILDCARDS = ("0.0.0.0", "[::]")
TOKEN = "token"  # in the metadata of a call
CODE = "code"  # in the file: what the hub runs
# of both sides; the hub itself takes no message larger than the largest that is legal (``limits.py``)
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
STREAMS = 64  # calls at once on one connection
DEADLINE = MOST_WAIT + 75.0  # s, longest call, since each call holds a thread of the server
STRANGERS = 64  # that are being refused; more of them are cut off without a word
WORDS = 400  # characters of an answer to a call that is refused
SILENCE = 60.0  # s, between two complaints about the same
GRACE = 1.0  # s, for calls under way when the server ends


def write_private(path: Path, text: str) -> None:
    """Writes the file atomically, readable by its owner alone. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    os.replace(temporary, path)


class Door(grpc.ServerInterceptor):
    """Rejects calls without the token before a byte of their message is read: the handlers take streams, so gRPC reads
    a message only on request, and until then holds a window of some kilobytes."""

    def __init__(self, token: str, calls: int) -> None:
        """calls: number of calls that may run or wait for a thread."""
        self.token = token
        self.inside, self.outside = threading.Semaphore(calls), threading.Semaphore(STRANGERS)
        self.clerk = ThreadPoolExecutor(1)  # no thread of those inside waits for a stranger
        self.stranger = self._refusal(grpc.StatusCode.UNAUTHENTICATED, f"not the token of {ADDRESS}", self.outside)
        self.crowd = self._refusal(grpc.StatusCode.UNAVAILABLE, "too many calls at once", self.outside)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        given = dict(details.invocation_metadata).get(TOKEN, "")
        known = hmac.compare_digest(str(given).encode(), self.token.encode())
        if known and self.inside.acquire(blocking=False):
            handler = continuation(details)
            if handler is None:  # no such method
                self.inside.release()
            return handler
        if not self.outside.acquire(blocking=False):
            return None
        return self.crowd if known else self.stranger

    def _refusal(self, code: Any, words: str, waiting: threading.Semaphore) -> Any:
        def refuse(requests: Any, context: Any) -> bytes:
            waiting.release()
            context.abort(code, words)
            raise AssertionError  # abort has raised

        refuse.experimental_thread_pool = self.clerk  # type: ignore[attr-defined]
        return grpc.stream_unary_rpc_method_handler(refuse)


class HubServer:
    """Server that runs from its construction on."""

    def __init__(self, hub: Hub, folder: Path, bind: str = "127.0.0.1") -> None:
        """bind: address to listen at, also published to clients; for "all addresses" (0.0.0.0, [::]) the host name is
        published. Raises OSError."""
        self.hub, self.token = hub, secrets.token_hex(16)
        self.complaint, self.complained_at = "", 0.0  # the latest
        # A call that waits keeps a thread: of each collector one at the most, and two of the learner's. And no more
        # messages are in memory than there are threads.
        threads = hub.workers + 6
        self.door = Door(self.token, 4 * threads)
        largest = ("grpc.max_receive_message_length", hub.limits.message_bytes)
        options = [*OPTIONS[1:], largest, ("grpc.max_concurrent_streams", STREAMS), ("grpc.max_metadata_size", 8192)]
        self.server = grpc.server(ThreadPoolExecutor(threads), options=options, interceptors=(self.door,))
        handlers = {name: grpc.stream_unary_rpc_method_handler(self._handler(name)) for name in CALLS}
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        bind = f"[{bind}]" if ":" in bind and not bind.startswith("[") else bind  # IPv6
        try:
            port = self.server.add_insecure_port(f"{bind}:0")
        except RuntimeError:
            raise OSError(f"cannot listen at {bind}, expected an address of this machine") from None
        self.server.start()
        host = socket.gethostname() if bind in WILDCARDS else bind
        found = {"address": f"{host}:{port}", TOKEN: self.token, CODE: sources("distributed")}
        write_private(folder / ADDRESS, json.dumps(found) + "\n")

    def _handler(self, name: str) -> Callable[[Any, Any], bytes]:
        method, limits, inside = getattr(self.hub, name), self.hub.limits, self.door.inside

        def answer(requests: Any, context: Any) -> bytes:
            left = context.time_remaining()
            if left is None or left > DEADLINE:
                raise WireError(f"expected a deadline of at most {DEADLINE:g} s")
            try:
                return pack([method(*limits.check(name, unpack(next(requests))))])
            except (Finished, Unpublished) as e:
                return pack(type(e).__name__)

        def handle(requests: Any, context: Any) -> bytes:
            code = grpc.StatusCode.INVALID_ARGUMENT
            try:
                return answer(requests, context)
            except (StopIteration, grpc.RpcError):  # it has ended without a message, or with one that is too large
                words = f"found no message of at most {limits.message_bytes:,} bytes"
            except (WireError, ValueError, RuntimeError) as e:
                words = str(e)
            except Exception as e:  # the hub's own trouble, a full disk: it goes on, and so may the caller
                code, words = grpc.StatusCode.INTERNAL, f"{type(e).__name__}: {e}"
                self._complain(f"{name}: {words}")
            finally:
                inside.release()
            context.abort(code, one_line(f"{name}: {words}", WORDS))
            raise AssertionError  # abort has raised

        return handle

    def _complain(self, words: str) -> None:
        """Logs its own trouble, and the same not again for a while: callers try ten times per second, and it may be the
        disk with the log that is full."""
        now = time.monotonic()
        if words != self.complaint or now - self.complained_at >= SILENCE:
            self.complaint, self.complained_at = words, now
            log.error("hub: %s", one_line(words, WORDS))

    def close(self) -> None:
        self.server.stop(GRACE).wait()
        self.door.clerk.shutdown(wait=False)
