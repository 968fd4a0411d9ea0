"""Where in a reply code may be: between fences, or between sentences."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

PYTHON = ("", "python", "py", "python3", "pytorch", "torch")  # what may stand behind ```


class Block(NamedTuple):
    """Text that may be code."""

    text: str
    closed: bool  # by a fence


def fences(reply: str) -> list[Block]:
    """Blocks between fences that say Python or nothing; the last one may lack its end."""
    found: list[Block] = []
    mark, indent, wanted, lines = "", 0, False, []  # type: ignore[var-annotated]
    for line in reply.split("\n"):
        fence = re.match(r"([ \t>*+\-\d.]*?)(`{3,}|~{3,})[ \t]*([^`]*)$", line)
        if not mark and fence:
            mark, indent, lines = fence[2], len(fence[1]), []
            words = re.split(r"[\s{}.:,]+", fence[3].strip().lower().lstrip("{."))
            wanted = words[0] in PYTHON
        elif mark and fence and fence[2].startswith(mark) and not fence[3].strip() and not fence[1].strip(" \t>"):
            found += [Block(_without_prefix(lines, indent), True)] * wanted
            mark = ""
        elif mark:
            lines.append(line)
    if mark and wanted:
        found.append(Block(_without_prefix(lines, indent), False))
    return found


def _without_prefix(lines: Sequence[str], most: int) -> str:
    """The lines of a block without what stands before all of them, at most what stands before its fence."""
    before = [len(line) - len(line.lstrip(" \t>")) for line in lines if line.strip(" \t>")]
    common = min([most, *before])
    return "\n".join(line[common:] for line in lines)


def unfenced(reply: str) -> list[Block]:
    """Code without fences: from the first line that begins like code to the last that continues it."""
    lines = reply.split("\n")
    starts = [
        i for i, line in enumerate(lines) if re.match(r"\s*(def|import|from|@)\b|@", line) and not _is_prose(line)
    ]
    defs = [i for i in starts if re.match(r"\s*def\s+\w+\s*\(", lines[i])]
    if not defs:
        return []
    first = min(starts)
    for above in range(first - 1, -1, -1):  # constants above the first function
        if re.match(r"[A-Z_][A-Z_0-9]*\s*(:.*)?=\s", lines[above]):
            first = above
        elif lines[above].strip() and not lines[above].startswith("#"):
            break
    base = len(lines[first]) - len(lines[first].lstrip())
    last = first
    open_ = 0
    for i in range(first, len(lines)):
        line = lines[i][base:] if not lines[i][:base].strip() else lines[i]
        inner = line[:1] in (" ", "\t") or open_ > 0
        top = re.match(r"(def|import|from|@|#|\)|\]|\}|[A-Za-z_]\w*\s*(:[^=]*)?=(?!=))", line) and not _is_prose(line)
        if line.strip() and not inner and not top:
            break
        if line.strip():
            last = i
        code = re.sub(r"#.*|'[^']*'|\"[^\"]*\"", "", line)
        open_ = max(0, open_ + sum(code.count(c) for c in "([{") - sum(code.count(c) for c in ")]}"))
    return [Block(textwrap.dedent("\n".join(lines[first : last + 1])), last + 1 < len(lines))]


def _is_prose(line: str) -> bool:
    """A sentence that begins like an import."""
    return bool(re.match(r"\s*(from|import)\b", line)) and not re.match(
        r"\s*(from\s+[\w.]+\s+import\s+[\w(*]|import\s+[\w.]+(\s+as\s+\w+)?(\s*,.*)?\s*(#.*)?$)", line
    )
