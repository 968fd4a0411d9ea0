"""HTTP for an evaluator, by the standard library: JSON in, JSON out, a token for everything.

POST /evaluate            {"code": "..."} or a model's reply as text; ?wait=SECONDS for the result
GET  /result/ID           the same result again; ?wait=SECONDS
GET  /status              task, settings, what waits, the human's score
"""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from envolve.llm.evaluator.work import Evaluator

MOST_BYTES = 262_144  # of a request
MOST_WAIT = 3_600.0  # s
MOST_CONNECTIONS = 64  # at once; more are answered with 503
MOST_STRANGERS = 64  # connections that have not shown the token yet; more are closed
NOT_A_NUMBER = float("nan")
IDLE = 60.0  # s that a connection may be silent
HEADERS = 10.0  # s until the token must be there
DRAIN_BYTES, DRAIN_SECONDS = 1 << 22, 2.0  # of a body that is not wanted: who is still sending reads no answer


class Server(ThreadingHTTPServer):
    """Listens at once; ``begin`` answers in threads of its own."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, evaluator: Evaluator, token: str, host: str = "127.0.0.1", port: int = 0) -> None:
        """port: 0 takes a free one. Raises OSError."""
        self.evaluator, self.token = evaluator, token
        self.room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.strangers = threading.BoundedSemaphore(MOST_STRANGERS)
        super().__init__((host, port), Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives a connection a thread, if strangers do not have too many already."""
        if not self.strangers.acquire(blocking=False):
            return self.shutdown_request(request)
        try:
            return super().process_request(request, client_address)
        except RuntimeError:  # the machine gives no more threads: this connection never reaches `finish`
            self.strangers.release()
            raise

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def begin(self) -> None:
        threading.Thread(target=self.serve_forever, daemon=True, name="http").start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    timeout = IDLE
    server_version = "envolve"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self._strange = True
        self._late = threading.Timer(HEADERS, self._give_up)
        self._late.daemon = True
        try:
            self._late.start()
        except RuntimeError:  # no more threads: ``finish`` is not called
            self._known()
            raise

    def finish(self) -> None:
        self._known()
        super().finish()

    def _known(self) -> None:
        """Makes room for the next stranger."""
        self._late.cancel()
        if self._strange:
            self._strange = False
            self.server.strangers.release()

    def _give_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged per request."""

    def do_POST(self) -> None:
        self._answered(self._post)

    def do_GET(self) -> None:
        self._answered(self._get)

    def _answered(self, work: Any) -> None:
        given = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            return self._refuse(401, "no such token; send the header Authorization: Bearer TOKEN")
        self._known()
        if not self.server.room.acquire(blocking=False):
            return self._refuse(503, f"more than {MOST_CONNECTIONS} connections at once; try again")
        try:
            length = self.headers.get("Content-Length", "")
            if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > MOST_BYTES):
                return self._refuse(413, f"a request of {length[:20]} bytes, at most {MOST_BYTES} are read")
            status, content = work(urlsplit(self.path))
            return self._say(status, content)
        finally:
            self.server.room.release()

    def _refuse(self, status: int, why: str) -> None:
        """Answers without having read the body, and reads it then for a moment: the sender of a connection that closes
        meanwhile sees a broken pipe and no answer."""
        self._say(status, {"error": why})
        self.close_connection = True
        left, end = DRAIN_BYTES, time.monotonic() + DRAIN_SECONDS
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(DRAIN_SECONDS)
            while left > 0 and time.monotonic() < end and (piece := self.rfile.read1(1 << 16)):
                left -= len(piece)

    def _post(self, url: Any) -> tuple[int, dict[str, Any]]:
        if url.path != "/evaluate":
            return 404, {"error": f"found POST {url.path[:100]!r}, expected /evaluate"}
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            return 411, {"error": "Content-Length is missing"}
        code = self._code(self.rfile.read(int(length)))
        if code is None:
            return 400, {"error": 'expected {"code": "..."} as JSON, or a reply as text/plain, in UTF-8'}
        number, fits = self.server.evaluator.submit(code)
        if not fits:
            return 429, {"error": f"{self.server.evaluator.queue} candidates wait already; try again later"}
        return self._result(number, url)

    def _code(self, data: bytes) -> str | None:
        try:
            text = data.decode("utf-8")
            if self.headers.get("Content-Type", "").startswith("text/"):  # curl -d says x-www-form-urlencoded
                return text or None
            content = json.loads(text)
        except (ValueError, RecursionError):
            return None
        code = content.get("code") if isinstance(content, dict) else None
        return code if isinstance(code, str) and code else None

    def _get(self, url: Any) -> tuple[int, dict[str, Any]]:
        if url.path == "/status":
            e = self.server.evaluator
            waiting = len(e.store.next(10**9))
            score = None if e.human is None else e.human["score"]
            return 200, {**e.store.settings, "waiting": waiting, "done": len(e.store.results), "human": score}
        if not url.path.startswith("/result/"):
            return 404, {"error": f"found GET {url.path[:100]!r}, expected /status or /result/ID"}
        number = url.path.removeprefix("/result/")
        if self.server.evaluator.store.known(number) is None and number not in self.server.evaluator.store.next(10**9):
            return 404, {"error": "no such candidate"}
        return self._result(number, url)

    def _result(self, number: str, url: Any) -> tuple[int, dict[str, Any]]:
        try:
            seconds = float(parse_qs(url.query).get("wait", ["0"])[0])
        except ValueError:
            seconds = NOT_A_NUMBER
        if not 0 <= seconds <= MOST_WAIT:
            return 400, {"error": f"wait: expected 0 to {MOST_WAIT:g} seconds"}
        found = self.server.evaluator.result(number, seconds)
        return (202, {"id": number, "status": "waiting"}) if found is None else (200, found)

    def _say(self, status: int, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
