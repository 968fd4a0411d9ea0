"""Problems in code, line by line. Expensive hints, such as the nearest of many names, are computed only for the few
problems that are reported."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from envolve.llm.vetting.text.naming import LONGEST, nearest

Hint = Callable[[], str]  # what is added to a problem


class Problems:
    """Problems in code, each once, in the order of discovery."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], Hint | None] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, where: ast.AST | int, text: str, hint: Hint | None = None) -> None:
        """where: a node, or a line, 0 if it is about the whole code."""
        line = where if isinstance(where, int) else getattr(where, "lineno", 0)
        self._found.setdefault((line, text), hint)

    def told(self, most: int, in_order: bool = True) -> str:
        """A line for each of the first problems, and the number of the others. in_order: of their lines in the code."""
        found = sorted(self._found) if in_order else list(self._found)
        lines = []
        for line, text in found[:most]:
            hint = self._found[line, text]
            lines.append(f"line {line}: " * bool(line) + text + (hint() if hint is not None else ""))
        return "\n".join(lines + [f"and {len(found) - most} more"] * (len(found) > most))


def near(name: str, known: Iterable[str], cutoff: float, otherwise: str, text: str = "; nearest: {!r}") -> Hint:
    """Hint with the nearest known name or, if none is near, with what to write instead."""

    def hint() -> str:
        found = nearest(name, known, cutoff)
        return text.format(found) if found else f"; {otherwise}"

    return hint


def short(name: str) -> str:
    """Shortened name for messages."""
    return name if len(name) <= LONGEST else name[:LONGEST] + "..."
