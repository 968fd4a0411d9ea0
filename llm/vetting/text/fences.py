"""Finds the code in a reply: between fences, or between sentences. Every line is read once."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from envolve.llm.vetting.text.parsing import MOST_CHARACTERS

PYTHON = ("", "python", "py", "python3", "pytorch", "torch")  # what may stand behind ```
_FENCE = re.compile(r"([ \t>*+\-\d.]*)(`{3,}|~{3,})")
_BEGINS = re.compile(r"^[^\S\n]*(?:def|import|from|@)\b|^@", re.MULTILINE)
_PROSE = re.compile(r"\s*(from|import)\b")
_IMPORT = re.compile(r"\s*(from\s+[\w.]+\s+import\s+[\w(*]|import\s+[\w.]+(\s+as\s+\w+)?(\s*,.*)?\s*(#.*)?$)")
_TOP = re.compile(r"(def|import|from|@|#|\)|\]|\}|[A-Za-z_]\w*\s*(:[^=]*)?=(?!=))")
_CONSTANT = re.compile(r"[A-Z_][A-Z_0-9]*\s*(:.*)?=\s")
_NO_BRACKETS = re.compile(r"#.*|'[^']*'|\"[^\"]*\"")


class Block(NamedTuple):
    """Text that may be code."""

    text: str
    closed: bool  # by a fence


def fences(reply: str) -> list[Block]:
    """Blocks between fences that say Python or nothing; the last one may lack its end."""
    found: list[Block] = []
    mark, indent, wanted, lines = "", 0, False, []  # type: ignore[var-annotated]
    for line in reply.split("\n"):
        fence = _FENCE.match(line) if "```" in line or "~~~" in line else None
        info = line[fence.end() :].lstrip(" \t") if fence else ""
        if not mark and fence and "`" not in info:
            mark, indent, lines = fence[2], len(fence[1]), []
            words = re.split(r"[\s{}.:,]+", info.strip().lower().lstrip("{."), maxsplit=1)
            wanted = words[0] in PYTHON
        elif mark and fence and fence[2].startswith(mark) and not info.strip() and not fence[1].strip(" \t>"):
            found += [Block(_without_prefix(lines, indent), True)] * wanted
            mark = ""
        elif mark:
            lines.append(line)
    if mark and wanted:
        found.append(Block(_without_prefix(lines, indent), False))
    return found


def _without_prefix(lines: Sequence[str], most: int) -> str:
    """Lines of a block without their common indentation, at most that of the fence."""
    before = [len(line) - len(line.lstrip(" \t>")) for line in lines if line.strip(" \t>")]
    common = min([most, *before])
    return "\n".join(line[common:] for line in lines)


def unfenced(reply: str) -> list[Block]:
    """Code without fences: from the first line that begins like code to the last that continues it."""
    lines = reply.split("\n")
    starts = [i for i in _lines_of(_BEGINS, reply) if not _is_prose(lines[i])]
    if not any(re.match(r"\s*def\s+\w+\s*\(", lines[i]) for i in starts):
        return []
    first = starts[0]
    for above in range(first - 1, -1, -1):  # constants above the first function
        if _CONSTANT.match(lines[above]):
            first = above
        elif lines[above].strip() and not lines[above].startswith("#"):
            break
    base = len(lines[first]) - len(lines[first].lstrip())
    last = first
    open_ = size = 0
    for i in range(first, len(lines)):
        line = lines[i][base:] if not lines[i][:base].strip() else lines[i]
        inner = line[:1] in (" ", "\t") or open_ > 0
        top = _TOP.match(line) and not _is_prose(line)
        if line.strip() and not inner and not top or size > MOST_CHARACTERS:  # more is not read anyway
            break
        size += len(line) + 1
        if line.strip():
            last = i
        code = _NO_BRACKETS.sub("", line)
        open_ = max(0, open_ + sum(code.count(c) for c in "([{") - sum(code.count(c) for c in ")]}"))
    return [Block(textwrap.dedent("\n".join(lines[first : last + 1])), last + 1 < len(lines))]


def _lines_of(pattern: re.Pattern[str], text: str) -> list[int]:
    """Numbers, from 0, of the lines at which matches begin."""
    found, line, at = [], 0, 0
    for match in pattern.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        found.append(line)
    return found


def _is_prose(line: str) -> bool:
    """True for a sentence that begins like an import."""
    return bool(_PROSE.match(line)) and not _IMPORT.match(line)
