"""Text of a rewritten module: what did not change stays as its author wrote it, with its comments."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from envolve.llm.vetting.normal.statements import Mark


class Renderer:
    """Writes statements. lines: of the code before; marks: of ``Statements``."""

    def __init__(self, code: str, marks: Mapping[int, str]) -> None:
        self.lines, self.marks = code.split("\n"), marks
        self._same: dict[int, bool] = {}

    def module(self, body: Sequence[ast.stmt]) -> str:
        return "\n".join(self._body(body, "")).strip("\n") + "\n"

    def _body(self, body: Sequence[ast.stmt], indent: str) -> list[str]:
        out: list[str] = []
        old = [s for s in body if self.marks.get(id(s)) != Mark.NEW]
        shared = any(a.end_lineno >= _first(b) for a, b in zip(old, old[1:]))  # type: ignore[operator]
        for k, statement in enumerate(body):
            if shared or self.marks.get(id(statement)) == Mark.NEW or not self._placed(statement, indent):
                out += self._anew(statement, indent)
                continue
            before = body[k - 1].end_lineno if k else None
            out += self._above(_first(statement), before)
            out += self._kept(statement, indent)
        return out

    def _placed(self, s: ast.stmt, indent: str) -> bool:
        """True if it stands alone on its lines, at this depth."""
        line = self.lines[_first(s) - 1]
        last = self.lines[(s.end_lineno or 1) - 1].encode()[s.end_col_offset or 0 :].decode().strip()
        return line.startswith(indent) and line[: len(indent) + 1].strip() != "" and last[:1] in ("", "#")

    def _above(self, first: int, before: int | None) -> list[str]:
        """Comments and empty lines right above a line."""
        at = first
        while at - 2 >= (before or 0) and self.lines[at - 2].strip()[:1] in ("", "#"):
            at -= 1
        found = self.lines[at - 1 : first - 1]
        return found if before is not None else [line for line in found if line.strip()]

    def _kept(self, s: ast.stmt, indent: str) -> list[str]:
        if self._unchanged(s):
            return self.lines[_first(s) - 1 : s.end_lineno]
        inner = getattr(s, "body", None)
        plain = inner and not getattr(s, "orelse", None) and isinstance(s, (ast.FunctionDef, ast.If, ast.For, ast.With))
        if not plain or not isinstance(inner, list):
            return self._anew(s, indent)
        starts = [_first(b) for b in inner if self.marks.get(id(b)) != Mark.NEW]
        head_only = self.marks.get(id(s)) == Mark.HEAD or not starts or starts[0] <= s.lineno
        if head_only:
            head = self._head(s, indent)
        else:
            end = self._end_of_head(s)
            head = self.lines[_first(s) - 1 : end]
        deeper = self._depth(inner, indent)
        return [*head, *self._body(inner, deeper)]

    def _end_of_head(self, s: ast.stmt) -> int:
        """Last line of ``def f(...):`` as it was: before the first statement of the old body and its comments."""
        first = next(_first(b) for b in s.body if self.marks.get(id(b)) != Mark.NEW)  # type: ignore[attr-defined]
        at = s.lineno
        while at < first - 1 and not self.lines[at - 1].split("#")[0].rstrip().endswith(":"):
            at += 1
        return at

    def _depth(self, inner: Sequence[ast.stmt], indent: str) -> str:
        for s in inner:
            if self.marks.get(id(s)) != Mark.NEW:
                line = self.lines[_first(s) - 1]
                space = line[: len(line) - len(line.lstrip())]
                if space.startswith(indent) and len(space) > len(indent):
                    return space
        return indent + "    "

    def _head(self, s: ast.stmt, indent: str) -> list[str]:
        """The first lines of a compound statement, anew."""
        saved = s.body  # type: ignore[attr-defined]
        s.body = [ast.Pass()]  # type: ignore[attr-defined]
        try:
            text = ast.unparse(ast.fix_missing_locations(s)).split("\n")
        finally:
            s.body = saved  # type: ignore[attr-defined]
        return [indent + line for line in text[:-1]]

    @staticmethod
    def _anew(s: ast.stmt, indent: str) -> list[str]:
        text = ast.unparse(ast.fix_missing_locations(s))
        return [indent + line if line else line for line in text.split("\n")]

    def _unchanged(self, s: ast.stmt) -> bool:
        """True if nothing in it was rewritten. Statements that were dropped leave a mark on their parent."""
        if id(s) not in self._same:
            inner = [b for name in ("body", "orelse") for b in getattr(s, name, []) if isinstance(b, ast.stmt)]
            own = id(s) not in self.marks
            self._same[id(s)] = own and all([self._unchanged(b) for b in inner])
        return self._same[id(s)]


def _first(s: ast.stmt) -> int:
    return min([s.lineno, *(d.lineno for d in getattr(s, "decorator_list", []))])
