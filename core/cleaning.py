"""Cleans foreign text so that it can be printed, logged and saved; logs what is said once.

Models, workers, programs and files of others may send anything: half of a surrogate pair, which no file in UTF-8 can
hold; control characters, which clear a terminal; marks that turn the direction of writing around, so that code is read
in another way than it runs (https://trojansource.codes). These functions are called where such text comes in; behind
that it is text like any other. Python 3.8.
"""

from __future__ import annotations

import functools
import logging
import re
import traceback
from typing import Optional

LONGEST = 4_000  # characters of a message
LONGEST_TRACEBACK = 20_000
MAX_TEXT = 2000  # characters of a reason that travels with a result
MORE = " ..."
REPLACED = "\ufffd"  # Unicode's own sign for a character that cannot be shown
_BREAKS = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+ *")  # line breaks, and what an editor takes for one
# controls but for tab and line feed; separators of lines that only some programs heed; marks of direction; surrogates;
# what is no character
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb\ufffe\uffff]"
)


def printable(text: str, longest: Optional[int] = None) -> str:
    """``text`` with line ends as \\n and one U+FFFD for each character that cannot be shown; form feeds, which Python
    takes for blanks, become blanks. Text longer than ``longest`` is cut, with " ..." appended."""
    more = MORE if longest is not None and len(text) > longest else ""
    text = text[:longest].replace("\r\n", "\n").replace("\r", "\n").replace("\f", " ")
    return _HIDDEN.sub(REPLACED, text) + more


def clean(text: str, longest: int = LONGEST) -> str:
    """Message that is safe to show to people and models: printable lines of limited length."""
    shown = printable(text[:longest]).replace("\t", " ")
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() or c == "\n" else REPLACED for c in shown)
    return shown + MORE * (len(text) > longest)


def one_line(text: str, longest: int = LONGEST) -> str:
    """Message in one line, so that no text can look like the next line of a log or of a table."""
    if text.isprintable() and len(text) <= longest:  # nearly every text: this is asked of each member of a generation
        return text
    return clean(_BREAKS.sub(" ", text[:longest]).strip(), longest) + MORE * (len(text) > longest)


def clip(text: str) -> str:
    """Last MAX_TEXT characters, because an exception's message is at the end. Characters that UTF-8 cannot encode (a
    file name of odd bytes) are escaped: a file with them could not be read."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= MAX_TEXT else "..." + text[-(MAX_TEXT - 3) :]


def printable_traceback() -> str:
    """Traceback of the current exception for a log; ``log.exception`` would print the exception's text raw."""
    return printable(traceback.format_exc(), LONGEST_TRACEBACK)


@functools.lru_cache(maxsize=None)
def warn_once(words: str) -> None:
    """Logs a warning a single time per process, however often its cause is met."""
    logging.getLogger("envolve").warning(words)
