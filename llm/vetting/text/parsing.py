"""Python's syntax tree of code that a model wrote, or what is wrong with it: the line, the reason, what to write."""

from __future__ import annotations

import ast
import threading
import warnings

from envolve.core.cleaning import REPLACED
from envolve.llm.vetting.text.scan import MOST_DEPTH, measure

MOST_CHARACTERS = 40_000  # of code
MOST_PARTS = 20_000  # names, numbers, signs and texts of code: what is allowed has a third of that at the most
# One thread parses at a time. Threads share the counter of depth in Python 3.11's parser: SystemError, "AST
# constructor recursion depth mismatch" (https://github.com/python/cpython/issues/106905); and catch_warnings is for one
# thread, too.
PARSER = threading.Lock()
LOOK_ALIKES = {
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u2212": "-",
    "\u00d7": "*", "\u00b7": "*", "\u00b2": "** 2", "\u2264": "<=", "\u2265": ">=", "\u2260": "!=",
    "\uff08": "(", "\uff09": ")", "\uff0c": ",", "\u2026": "...", "\u00a0": "a space", "\u200b": "nothing",
    "\ufeff": "nothing", REPLACED: "nothing: it stands for a character that cannot be shown",
}  # fmt: skip
DEEP = "the code is nested too deeply; give parts of it names, in statements of their own"


class VetError(Exception):
    """Raised for a refused reply or its code.

    stage: "extract", "allowlist", "trace", "smoke", "graph" or "limits"; message: for the model that wrote it."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage, self.message = stage, message


def parse(code: str, stage: str = "extract", most: int = MOST_PARTS) -> ast.Module:
    """``ast.parse`` that raises VetErrors of this stage, with the line. most: number of parts to read."""
    if len(code) > MOST_CHARACTERS:
        raise VetError(
            stage, f"the code has {len(code)} characters, at most {MOST_CHARACTERS} are allowed: write shorter code"
        )
    size = measure(code, most)
    if size.depth > MOST_DEPTH:
        raise VetError(stage, f"{_place(code, size.line)}: more than {MOST_DEPTH} brackets within brackets: {DEEP}")
    if size.parts > most:
        raise VetError(stage, f"the code has more than {most} names, numbers and signs: write shorter code")
    try:
        with PARSER, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "invalid escape sequence" and the like are not ours to print
            return ast.parse(code)
    except SyntaxError as e:
        if "null bytes" in e.msg:  # Python 3.12 and later; earlier ones say it with a ValueError
            raise _null(code, stage) from e
        line = e.lineno or 1
        raise VetError(stage, f"{_place(code, line)}: {_syntax(e, _line(code, line))}") from e
    except ValueError as e:
        raise (_null(code, stage) if "\0" in code else VetError(stage, f"the code cannot be parsed: {e}")) from e
    except (RecursionError, MemoryError) as e:
        lines = code.split("\n")
        raise VetError(stage, f"{_place(code, 1 + max(range(len(lines)), key=lambda i: len(lines[i])))}: {DEEP}") from e


def _line(code: str, number: int) -> str:
    lines = code.split("\n")
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def _place(code: str, number: int) -> str:
    return f"line {number} ({_line(code, number)[:120]})"


def _null(code: str, stage: str) -> VetError:
    line = code.count("\n", 0, max(0, code.find("\0"))) + 1
    return VetError(stage, f"line {line}: the code has null bytes; leave them out")


def _syntax(error: SyntaxError, text: str) -> str:
    for character in text:
        if character in LOOK_ALIKES and (error.msg.startswith("invalid") or "unterminated" in error.msg):
            return f"found {character!r} (U+{ord(character):04X}); write {LOOK_ALIKES[character]}"
    if isinstance(error, TabError):
        return "tabs and spaces are mixed in the indentation; write four spaces"
    return f"{type(error).__name__}: {error.msg}"
