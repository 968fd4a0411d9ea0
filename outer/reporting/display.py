"""One live table: drawn by rich in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typing_extensions import Self

from envolve.agents.common.compiling import EVERY, under_way

WIDE = 200  # columns


def can_redraw(console: Console) -> bool:
    """True if a live table can be drawn there."""
    # FORCE_COLOR makes rich take a file for a terminal, and a file full of cursor movements helps no one
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal


class LiveDisplay:
    """Display of what runs: a title, ``_parts`` (a bar, tables) and the last few notes.

    In a terminal, rich draws it again four times a second in a thread of its own; elsewhere ``live`` is None and lines
    are printed. Whatever ``_parts`` reads is changed under ``lock``, which is never held while rich is asked to draw.
    """

    NOTES = 3

    def __init__(self, title: str, console: Console | None = None) -> None:
        self.title, self.console, self.began = title, console or Console(), time.monotonic()
        self.live: Live | None = None
        self.notes: deque[str] = deque(maxlen=self.NOTES)
        self.lock = threading.Lock()

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        if can_redraw(self.console):  # not before: rich draws at once, and needs all that _parts reads
            self.live = Live(
                get_renderable=self._render,
                console=self.console,
                refresh_per_second=4,
                redirect_stderr=sys.stderr.isatty(),
            )
            self.live.start()
        else:
            self._line(self.title)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.live:
            self.live.stop()

    def note(self, text: str) -> None:
        """Adds a permanent line: a restart, a lost worker."""
        with self.lock:
            self.notes.append(text)
        self._show(f"note: {text}")

    def _show(self, line: str | None) -> None:
        """After a change: draws anew, or prints the line. None: nothing that a line would say."""
        if self.live:
            self.live.refresh()
        elif line is not None:
            self._line(line)

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        self.console.file.flush()

    def _render(self) -> RenderableType:
        with self.lock:
            notes = [Text(f"note: {n}", style="yellow") for n in self.notes]
            return Group(Text(self.title, style="bold"), *self._parts(), *notes)

    def _parts(self) -> list[RenderableType]:
        raise NotImplementedError


def bar(done: float, total: float, *texts: str | Text) -> Table:
    """A line: how much is done, and texts beside it."""
    line = Table.grid(padding=(0, 2))
    line.add_row(ProgressBar(total=max(1, total), completed=min(done, max(1, total)), width=24), *texts)
    return line


def columns(headings: Sequence[str], left: int = 1, padding: int = 1) -> Table:
    """A table without lines; the first ``left`` columns are aligned to the left, all others to the right."""
    table = Table(box=None, padding=(0, padding), header_style="dim")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i < left else "right", no_wrap=True)
    return table


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
