"""A page that follows a run: a server on 127.0.0.1, for whoever has its token.

The page asks for news every 1.5 s. It is made again only when a file in the folder has changed, so that a run that has
ended costs nothing. Whatever happens to the run, what is in its folder is shown; a folder that has vanished keeps its
last page.
"""

from __future__ import annotations

import hashlib
import hmac
import http.server
import os
import secrets
import threading
import urllib.parse
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envolve.outer.page import write
from envolve.outer.page.compare import compare, names_of
from envolve.outer.page.kinds import Kind, NoRunError, read_page
from envolve.outer.page.parts import RUNNING, Page

BODY = "/body"
OURS = "report.html"  # the page itself is no news


class Pages:
    """The pages of some folders, read again when something has changed. Raises NoRunError."""

    def __init__(self, folders: Sequence[Path], kinds: Sequence[Kind]) -> None:
        self.folders, self.kinds = list(folders), kinds
        self.lock = threading.Lock()
        self.seen: list[tuple[str, int, int]] | None = None
        self.pages: list[Page] = []
        self.body_, self.tag = "", ""

    @property
    def problems(self) -> list[str]:
        return [f"{page.folder}: {problem}" for page in self.pages for problem in page.problems]

    @property
    def state(self) -> str:
        """The states of all runs, each once."""
        return ", ".join(dict.fromkeys(page.state for page in self.pages))

    def _read(self) -> None:
        self.pages = [read_page(folder, self.kinds) for folder in self.folders]

    def _around(self) -> tuple[Page | None, list[str]]:
        return (compare(self.pages), names_of(self.pages)) if len(self.pages) > 1 else (None, [])

    def html(self, live: str = "") -> str:
        """The whole page."""
        with self.lock:
            self._refresh()
            together, names = self._around()
            return write.html(self.pages, together, names, live)

    def body(self) -> tuple[str, str]:
        """What is within <main>, and a tag that changes with it."""
        with self.lock:
            self._refresh()
            if not self.body_:
                together, names = self._around()
                self.body_ = write.body(self.pages, together, names)
                self.tag = hashlib.sha256(self.body_.encode()).hexdigest()[:24]
            return self.body_, self.tag

    def _refresh(self) -> None:
        """Reads the folders if something has changed. What was read last stays if they have vanished."""
        try:
            if not self.pages:
                self._read()
            seen = self._files()
            # a run that has just stopped writing changes its state without changing a file
            if seen != self.seen or any(page.state == RUNNING for page in self.pages):
                self._read()
                self.seen, self.body_ = seen, ""
        except (NoRunError, OSError):
            if not self.pages:
                raise

    def _files(self) -> list[tuple[str, int, int]]:
        """Names, sizes and times of the files in the folders and one level below."""
        found = []
        for folder in self.folders:
            for path in [*folder.iterdir(), *(p for d in folder.iterdir() if d.is_dir() for p in _children(d))]:
                try:
                    status = path.stat()
                except OSError:
                    continue
                if path.name != OURS:
                    found.append((str(path), status.st_size, status.st_mtime_ns))
        return sorted(found)


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir()) if os.access(folder, os.R_OK | os.X_OK) else []
    except OSError:
        return []


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, pages: Pages, token: str) -> None:
        self.pages, self.token = pages, token
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "envolve", ""

    def log_message(self, *args: Any) -> None:
        pass  # requests of the page, every second

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        given = urllib.parse.parse_qs(address.query).get("token", [""])[0]
        own = f"127.0.0.1:{self.server.server_address[1]}"
        if self.headers.get("Host") != own:  # a page of another site that has had its name point here
            return self._answer(403, "text/plain", f"open http://{own}/ with its token\n")
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            return self._answer(403, "text/plain", "the token is missing or wrong; envolve report --watch printed it\n")
        try:
            if address.path == BODY:
                body, tag = self.server.pages.body()
                more = {"ETag": tag, "X-State": self.server.pages.state}
                if self.headers.get("If-None-Match") == tag:
                    return self._answer(304, "text/html", "", more)
                return self._answer(200, "text/html", body, more)
            if address.path == "/":
                return self._answer(200, "text/html", self.server.pages.html(f"{BODY}?token={self.server.token}"))
        except (NoRunError, OSError) as e:
            return self._answer(500, "text/plain", f"{e}\n")
        self._answer(404, "text/plain", "found no such page, expected /\n")

    def _answer(self, code: int, kind: str, text: str, more: dict[str, str] | None = None) -> None:
        data = text.encode()
        try:
            self.send_response(code)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            for name, value in {
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
                **(more or {}),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if code != 304:
                self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):  # the page was closed meanwhile
            pass


def serve(pages: Pages, port: int = 0, open_browser: bool = False) -> int:
    """Serves until Ctrl-C -> exit code. Raises OSError if the port is taken."""
    token = secrets.token_urlsafe(16)
    try:
        server = _Server(port, pages, token)
    except OSError as e:
        raise OSError(e.errno, e.strerror, f"127.0.0.1:{port}") from e
    address = f"http://127.0.0.1:{server.server_address[1]}/?token={token}"
    print(f"Live page: {address}\nCtrl-C ends it; the run is not touched.", flush=True)
    if open_browser:
        webbrowser.open(address)
    with server:
        server.serve_forever(poll_interval=0.2)
    return 0
