"""Counts the size of code before anything is built from it.

Python's parser takes memory and time for every name and sign, and far more for what is nested; so only as much as a
person might write is given to it. One pass over the characters, whatever they are.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_DEPTH = 60  # brackets in brackets
# Text (with the letters before its quotes), comments, names and numbers, any other sign. Every alternative takes
# whatever it begins with, so that nothing is looked at twice.
_PART = re.compile(
    r"""(?:[A-Za-z]{0,2}(?:'''(?:[^\\']+|\\.|'(?!''))*(?:'''|\\?\Z)|\"""(?:[^\\"]+|\\.|"(?!""))*(?:\"""|\\?\Z)"""
    r"""|'(?:[^\\'\n]+|\\.)*'?|"(?:[^\\"\n]+|\\.)*"?))|\#[^\n]*|\w+|[^\w\s]""",
    re.DOTALL,
)
_FORMATTED = re.compile(r"[rR]?[fF][rR]?['\"]")
_INSIDE = re.compile(r"\w+|[^\w\s]")  # of an f-string


class Size(NamedTuple):
    """Size of code."""

    parts: int  # names, numbers, signs and texts; counted up to one more than was asked for
    depth: int  # of brackets, as far as was counted
    line: int  # where that depth is reached, from 1


def measure(text: str, most: int) -> Size:
    """Counts until there are more than ``most`` parts or MOST_DEPTH brackets in brackets."""
    parts = depth = deepest = at = 0
    for found in _PART.finditer(text):
        parts += 1
        first = text[found.start()]
        if first in "([{":
            depth += 1
            if depth > deepest:
                deepest, at = depth, found.start()
        elif first in ")]}":
            depth = max(0, depth - 1)
        elif first in "fFrR" and _FORMATTED.match(text, found.start()):
            parts += sum(1 for _ in zip(_INSIDE.finditer(found.group()), range(most)))
        if parts > most or deepest > MOST_DEPTH:
            break
    return Size(parts, deepest, text.count("\n", 0, at) + 1)
