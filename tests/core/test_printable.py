"""Text of others can be printed, logged and saved."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from envolve.core.cleaning import REPLACED, printable

ANY = st.text(st.characters(codec=None) | st.characters(categories=("Cs", "Cc", "Cf")), max_size=200)


@given(ANY)
def test_whatever_it_is(text: str) -> None:
    shown = printable(text)
    shown.encode("utf-8")
    assert printable(shown) == shown and len(shown) <= len(text)
    controls = [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]
    assert not controls and len(shown.split("\n")) == len(shown.splitlines()) + (not shown or shown[-1] == "\n")
    turning = [c for c in shown if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI")]
    assert not turning


def test_what_people_write_stays() -> None:
    text = "def f(x):\n\treturn 'é' + \"日本語\"  # \u2212 \u00a0 \U0001f600 e\u0301\n"
    assert printable(text) == text
    assert printable("a\r\nb\rc\fd") == "a\nb\nc d"
    assert printable("\x1b[2J\ud800x\u202ey") == f"{REPLACED}[2J{REPLACED}x{REPLACED}y"
    assert printable("abcdef", 3) == "abc ..." and printable("abc", 3) == "abc"
