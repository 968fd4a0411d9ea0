"""The live table that all commands share: a terminal, no terminal, notes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from envolve.outer.reporting.display import LiveDisplay, bar, columns


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Counting(LiveDisplay):
    number = 0

    def count(self, line: str | None) -> None:
        with self.lock:
            self.number += 1
        self._show(line)

    def _parts(self) -> list[RenderableType]:
        table = columns(("name", "number"))
        table.add_row("n", str(self.number))
        return [bar(self.number, 2, Text("of two")), table]


def drawn(console_file: io.StringIO, **kind: object) -> Console:
    return Console(file=console_file, width=60, color_system=None, **kind)  # type: ignore[arg-type]


def test_a_terminal_shows_title_bar_table_and_the_last_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Counting("a title", drawn(out, force_terminal=True)) as table:
        assert table.live is not None
        for k in range(5):
            table.note(f"note number {k}")
        table.count("a line")
        table.count(None)
        shown = drawn(plain := io.StringIO())
        shown.print(table._render())
    lines = [line.split() for line in plain.getvalue().splitlines()]
    assert lines[0] == ["a", "title"] and lines[1][-2:] == ["of", "two"] and ["n", "2"] in lines
    assert [line[-1] for line in lines[-3:]] == ["2", "3", "4"], "the last three"
    assert "a title" in out.getvalue() and "a line" not in out.getvalue()
    assert out.getvalue().endswith("\x1b[?25h"), "the cursor is shown again"


def test_elsewhere_lines_are_printed() -> None:
    out = io.StringIO()
    with Counting("a [title]", drawn(out)) as table:
        table.count("first [bold]")
        table.count(None)
        table.note("x")
    assert table.live is None and out.getvalue().splitlines() == ["a [title]", "first [bold]", "note: x"]


def test_a_bar_of_nothing_can_be_drawn() -> None:
    drawn(out := io.StringIO()).print(bar(3, 0, "text"))
    assert "text" in out.getvalue()
