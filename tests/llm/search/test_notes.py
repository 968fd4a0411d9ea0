"""Notes that models leave."""

from __future__ import annotations

import pytest

from envolve.llm.search.notes import LIMIT, MOST, notes_of, with_notes
from tests.llm.individuals import individual


@pytest.mark.parametrize(
    "reply, notes",
    [
        ("```python\nx\n```\nNOTES: a\nb", "a / b"),
        ("```python\nx\n```\n**Notes:**\n- a\n- b\n", "- a / - b"),
        ("## NOTES: a", "a"),
        ("NOTES: old\n```python\nNOTES: code\n```\n", ""),
        ("NOTES: first\nNOTES: second", "second"),
        ("<think>NOTES: thought</think>```python\nx\n```", ""),
        ("no", ""),
        ("", ""),
    ],
)
def test_they_stand_after_the_code(reply: str, notes: str) -> None:
    assert notes_of(reply) == notes


def test_they_are_short_and_few_and_the_best_is_among_them() -> None:
    known = [individual(k, reply=f"NOTES: note {k} " + "x" * 5000, score=9.0 if k == 1 else float(k == 7))
             for k in range(9)]  # fmt: skip
    messages = with_notes((("system", "s"), ("user", "write")), known)
    text = messages[-1][1]
    assert messages[0] == ("system", "s") and text.startswith("write\n\n")
    shown = [k for k in range(9) if f"note {k} " in text]
    assert shown == [1, 5, 6, 7, 8] and len(shown) == MOST and len(text) < MOST * (LIMIT + 100) + 400


def test_without_any_they_are_asked_for() -> None:
    ((_, text),) = with_notes((("user", "write"),), [individual(0)])
    assert text.startswith("write\n\nEnd your answer") and "earlier attempts left" not in text
