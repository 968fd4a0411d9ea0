"""Replies that change a program in places: SEARCH and REPLACE blocks, as version control marks a conflict.

<<<<<<< SEARCH
    speed_weight = 1.5
=======
    speed_weight = 2.0
>>>>>>> REPLACE
"""

from __future__ import annotations

import re
from collections.abc import Callable

from envolve.llm.vetting.text.extract import MOST_REPLY
from envolve.llm.vetting.text.parsing import VetError
from envolve.llm.vetting.text.thoughts import without_thoughts

MOST_EDITS = 40
_SEARCH, _DIVIDER = re.compile(r"[ \t]*<{5,}[ \t]*SEARCH"), re.compile(r"[ \t]*={5,}[ \t]*")
_REPLACE = re.compile(r"[ \t]*>{5,}[ \t]*REPLACE")


def edits_of(reply: str) -> list[tuple[str, str]]:
    """(what is there, what takes its place), in order, outside of what a model thought. Raises VetError. One pass over
    the lines: a pattern over several of them would go back again and again."""
    found: list[tuple[str, str]] = []
    old: list[str] | None = None  # lines of SEARCH so far; None: outside of a block
    new: list[str] | None = None  # those behind the divider
    for line in without_thoughts(reply).split("\n"):
        if old is None:
            old = [] if _SEARCH.match(line) else None
        elif new is None:
            if _DIVIDER.fullmatch(line):
                new = []
            else:
                old.append(line + "\n")
        elif _REPLACE.match(line):
            found.append(("".join(old), "".join(new)))
            old = new = None
        else:
            new.append(line + "\n")
    if len(found) > MOST_EDITS:
        raise VetError("extract", f"{len(found)} changes; at most {MOST_EDITS} are allowed: write the whole code")
    return found


def edited(code: str, reply: str) -> str | None:
    """``code`` with the changes of a reply; None: it has none, so it is a whole program. A place is found by its lines,
    whatever blanks are at their ends; if none fits, by its lines without indentation. Raises VetError."""
    edits = edits_of(reply) if len(reply) <= MOST_REPLY else []  # ``extract`` refuses a longer one
    if not edits:
        return None
    lines = code.split("\n")
    for number, (old, new) in enumerate(edits, 1):
        wanted, put = _lines(old), _lines(new)
        if not wanted:
            raise VetError("extract", f"change {number}: SEARCH is empty; write the lines that it replaces")
        place = _places(lines, wanted, str.rstrip) or _places(lines, wanted, str.strip)
        if not place:
            raise VetError(
                "extract",
                f"change {number}: the code has no lines {wanted[0].strip()[:80]!r} ... as SEARCH has them; "
                "copy them from the code, or write the whole code",
            )
        if len(place) > 1:
            raise VetError("extract", f"change {number}: SEARCH fits {len(place)} places; write more lines around it")
        lines[place[0] : place[0] + len(wanted)] = _indented(put, wanted[0], lines[place[0]])
    return "\n".join(lines)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")[:-1]
    while lines and not lines[0].strip():
        lines = lines[1:]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def _places(lines: list[str], wanted: list[str], form: Callable[[str], str]) -> list[int]:
    target, shown = [form(line) for line in wanted], [form(line) for line in lines]
    return [k for k in range(len(lines) - len(wanted) + 1) if shown[k : k + len(wanted)] == target]


def _indented(put: list[str], wanted: str, there: str) -> list[str]:
    """New lines moved by as many blanks as the old ones were off."""
    more = (len(there) - len(there.lstrip())) - (len(wanted) - len(wanted.lstrip()))
    if more >= 0:
        return [" " * more + line if line.strip() else line for line in put]
    return [line[min(-more, len(line) - len(line.lstrip())) :] for line in put]
