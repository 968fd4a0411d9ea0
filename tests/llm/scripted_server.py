"""A server that speaks OpenAI's chat protocol and answers as a script says: well, badly, late, or not to the end.

with ScriptedServer([limited(retry_after=1), good("```python\n...```")]) as server:
    make_chat(["any-name"], base_url=server.url)
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """delay: s before the first byte. pause: s between two bytes of the body. length: said, where it is not the truth:
    the connection closes after the body."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    delay: float = 0.0
    pause: float = 0.0
    length: int | None = None


def completion(text: str | None, finish: str = "stop", tokens: tuple[int, int] | None = (20, 10)) -> dict[str, Any]:
    """The body of a reply. tokens: of prompt and reply; None: the server counts none."""
    message = {"role": "assistant", "content": text}
    body = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "scripted-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }  # fmt: skip
    if tokens is not None:
        body["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return body


def good(text: str, **options: Any) -> Answer:
    """Any text: sound code, broken code, hostile code; the transport does not tell them apart."""
    return Answer(json.dumps(completion(text, **options)).encode())


def truncated(text: str) -> Answer:
    return good(text, finish="length")


def empty() -> Answer:
    return Answer(json.dumps(completion(None)).encode())


def slow(text: str, seconds: float) -> Answer:
    return replace(good(text), delay=seconds)


def dripping(text: str, pause: float) -> Answer:
    """A byte at a time, so that no single read takes long."""
    return replace(good(text), pause=pause)


def error(status: int, message: str, retry_after: str | None = None, **fields: Any) -> Answer:
    headers = {"Content-Type": "application/json", **({} if retry_after is None else {"Retry-After": retry_after})}
    return Answer(json.dumps({"error": {"message": message, **fields}}).encode(), status, headers)


def limited(retry_after: str | None = None) -> Answer:
    return error(429, "Rate limit reached", retry_after)


def malformed() -> Answer:
    return Answer(good("half a reply").body[:-9])


def cut() -> Answer:
    """The connection closes in mid-reply."""
    answer = good("a reply that never ends")
    return replace(answer, body=answer.body[:40], length=len(answer.body))


def web_page() -> Answer:
    return Answer(b"<html><body>Welcome</body></html>", headers={"Content-Type": "text/html"})


def huge(size: int) -> Answer:
    return good("x" * size)


Script = Sequence[Answer] | Callable[[dict[str, Any]], Answer]


class ScriptedServer:
    """script: the answers in order, the last one again and again; or a function of the request's JSON.

    requests: what came in: path, headers (lower case), JSON. models: what GET /v1/models lists.
    """

    def __init__(self, script: Script, models: Sequence[str] = ()) -> None:
        self.script, self.models = script, models
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.answered = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(outer._next(self, content))

            def do_GET(self) -> None:
                body = {"object": "list", "data": [{"id": name, "object": "model"} for name in outer.models]}
                self._send(Answer(json.dumps(body).encode()))

            def _send(self, answer: Answer) -> None:
                if outer.closing.wait(answer.delay):
                    return
                try:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(answer.length or len(answer.body)))
                    self.end_headers()
                    if answer.pause:
                        for i in range(len(answer.body)):
                            self.wfile.write(answer.body[i : i + 1])
                            if outer.closing.wait(answer.pause):
                                return
                    else:
                        self.wfile.write(answer.body)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client has had enough
                if answer.length is not None:
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _next(self, handler: BaseHTTPRequestHandler, content: Any) -> Answer:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self.lock:
            self.requests.append((handler.path, headers, content))
            if callable(self.script):
                return self.script(content)
            self.answered += 1
            return self.script[min(self.answered, len(self.script)) - 1]

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Fails after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
