from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from envolve.core.cleaning import LONGEST, MORE, REPLACED, clean, one_line


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    text = "\x1b[2J\x07ok\n\u202e\ud800\x85"
    R = REPLACED
    assert clean(text) == f"{R}[2J{R}ok\n{R}{R}{R}" and one_line(text) == f"{R}[2J{R}ok {R}{R}"
    assert one_line("a\r\n\n  b\tc\u2028d ") == "a b c d"
    assert clean("plain ünïcode 漢字") == one_line("plain ünïcode 漢字") == "plain ünïcode 漢字"


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=300), st.integers(1, 200))
def test_nothing_but_printable_text_of_bounded_length_is_left(text: str, longest: int) -> None:
    line = one_line(text, longest)
    assert line.isprintable() and len(line) <= longest + len(MORE)
    shown = clean(text, longest)
    assert all(c == "\n" or c.isprintable() for c in shown) and len(shown) <= longest + len(MORE)
    line.encode()


def test_the_time_goes_with_the_length_shown() -> None:
    """Not with what was sent, nor with its square."""
    began = time.process_time()
    for text in (" " * 10**7, "\n" * 10**7, "\t \n" * 10**6, "\x1b" * 10**7):
        assert len(one_line(text)) <= LONGEST + len(MORE)
    assert time.process_time() - began < 1.0
