"""What live tables share: in a terminal rich draws them, elsewhere plain lines are printed."""

from __future__ import annotations

import threading
import time
from collections import deque

from rich.console import Console, RenderableType
from rich.live import Live
from typing_extensions import Self


def can_redraw(console: Console) -> bool:
    """Whether a live table can follow a run there."""
    # FORCE_COLOR makes rich take a file for a terminal, and a file full of cursor movements helps no one
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal


class LiveDisplay:
    """Follows a run: ``live`` is drawn in a terminal, and is None where the output is none; there lines are printed."""

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
    """One that rich draws by ``_draw`` from a thread of its own, with the last few notes in it."""

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
        """A line that stays: a restart, a lost worker."""
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
