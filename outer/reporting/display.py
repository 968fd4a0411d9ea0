"""Basis of live tables: drawn by rich in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from typing_extensions import Self

from envolve.agents.common.compiling import EVERY, under_way

WIDE = 200  # columns


def can_redraw(console: Console) -> bool:
    """True if a live table can be drawn there."""
    # FORCE_COLOR makes rich take a file for a terminal, and a file full of cursor movements helps no one
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal


class LiveDisplay:
    """Display of a run: ``live`` is drawn in a terminal; elsewhere it is None and lines are printed."""

    def __init__(self, title: str, console: Console) -> None:
        self.title, self.console, self.began = title, console, time.monotonic()
        self.live: Live | None = None

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        if self.live:
            self.live.start()
        else:
            self._line(self.title)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.live:
            self.live.stop()

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        self.console.file.flush()


class NotedDisplay(LiveDisplay):
    """Live display drawn by rich with ``_draw`` in its own thread, with the last few notes in it."""

    NOTES = 3

    def __init__(self, title: str, console: Console, redirect_stderr: bool = True) -> None:
        super().__init__(title, console)
        self.notes: deque[str] = deque(maxlen=self.NOTES)
        self.lock = threading.Lock()  # of what _draw reads; never held while rich is asked to draw
        self.redirect_stderr = redirect_stderr

    def __enter__(self) -> Self:
        if can_redraw(self.console):  # not before: rich draws at once, and needs all that _draw reads
            self.live = Live(get_renderable=self._render, console=self.console, refresh_per_second=4,
                             redirect_stderr=self.redirect_stderr)  # fmt: skip
        return super().__enter__()

    def note(self, text: str) -> None:
        """Adds a permanent line: a restart, a lost worker."""
        with self.lock:
            self.notes.append(text)
        if self.live:
            self.live.refresh()
        else:
            self._line(f"note: {text}")

    def _render(self) -> RenderableType:
        with self.lock:
            return self._draw()

    def _draw(self) -> RenderableType:
        raise NotImplementedError


class CompilingWatch:
    """Watches the compilation of kernels for this process and its children. ``text``: what is compiled, or ""."""

    LOOK = 0.5  # seconds between two looks

    def __init__(self) -> None:
        self.text = ""
        self._seen = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, line: Callable[[str], None] | None) -> None:
        """line: prints compilations now and then, if no table shows them."""
        self._over.clear()
        self._thread = threading.Thread(target=self._watch, args=(line,), name="compiling", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()
        self.text = ""

    def seen(self) -> bool:
        """True if anything was compiled since the last call."""
        seen, self._seen = self._seen or bool(self.text), False
        return seen

    def _watch(self, line: Callable[[str], None] | None) -> None:
        said = 0.0
        while not self._over.is_set():
            self.text = under_way() or ""
            if self.text:
                self._seen = True
                now = time.monotonic()
                if line and now - said >= EVERY:
                    said = now
                    line(self.text)
            self._over.wait(self.LOOK)


def wide_console(file: Any = None) -> Console:
    """Console that does not squeeze tables where the output is not a terminal."""
    console = Console(file=file)
    return console if console.is_terminal else Console(file=file, width=WIDE)
