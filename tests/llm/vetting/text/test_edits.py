"""Changes of single places of a program."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.llm.vetting.text.edits import MOST_EDITS, edited, edits_of
from envolve.llm.vetting.text.parsing import VetError
from envolve.llm.vetting.text.thoughts import without_thoughts

CODE = "import torch\n\n\ndef f(x):\n    a = 1\n    if x:\n        a = 2\n    return a\n"


def block(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    "old, new, there, then",
    [
        ("    a = 1\n", "    a = 3\n", "    a = 1\n", "    a = 3\n"),
        ("    a = 1   \n", "    a = 3\n", "    a = 1\n", "    a = 3\n"),  # blanks at the end
        ("a = 2\n", "a = 3\nb = 1\n", "        a = 2\n", "        a = 3\n        b = 1\n"),  # no indentation
        ("    if x:\n        a = 2\n", "", "    if x:\n        a = 2\n", ""),
        ("\n    return a\n\n", "    b = a\n    return b\n", "    return a\n", "    b = a\n    return b\n"),
    ],
)
def test_a_place_is_found(old: str, new: str, there: str, then: str) -> None:
    assert edited(CODE, "Some words.\n" + block(old, new)) == CODE.replace(there, then)


def test_one_after_another_and_within_a_fence() -> None:
    reply = "```\n" + block("    a = 1\n", "    a = 5\n") + "```\nand\n" + block("    a = 5\n", "    a = 6\n")
    assert edited(CODE, reply) == CODE.replace("a = 1", "a = 6")


@pytest.mark.parametrize(
    "reply, said",
    [
        (block("    b = 1\n", "x\n"), "change 1: the code has no lines 'b = 1'"),
        (block("", "x\n"), "change 1: SEARCH is empty"),
        (
            block("    a = 1\n", "    a = 2\n    a = 2\n") + block("    a = 2\n    a = 2\n", "") + block("q\n", ""),
            "change 3",
        ),
        (block("    a = 1\n", "    a = 1\n") * (MOST_EDITS + 1), "41 changes"),
    ],
)
def test_why_it_cannot_be_made(reply: str, said: str) -> None:
    with pytest.raises(VetError) as e:
        edited(CODE, reply)
    assert e.value.stage == "extract" and said in e.value.message


def test_a_place_that_is_there_twice() -> None:
    with pytest.raises(VetError, match="fits 2 places"):
        edited("a\nb\na\n", block("a\n", "c\n"))


def test_a_whole_program_is_none_and_thoughts_do_not_count() -> None:
    assert edited(CODE, "```python\ndef f(x): return 1\n```") is None
    assert edited(CODE, f"<think>{block('zz', 'y')}</think>```python\nx\n```") is None


PATTERN = re.compile(
    r"^[ \t]*<{5,}[ \t]*SEARCH[^\n]*\n(.*?)^[ \t]*={5,}[ \t]*\n(.*?)^[ \t]*>{5,}[ \t]*REPLACE", re.DOTALL | re.MULTILINE
)
LINES = ["<<<<<<< SEARCH", " <<<<<SEARCH x", "=======", "===== ", "== =", ">>>>>>> REPLACE", ">>>>>REPLACE y", "a", ""]


@given(st.lists(st.sampled_from([*LINES, "<think>", "</think>"]), max_size=14))
def test_a_pass_over_the_lines_finds_what_a_slow_pattern_does(lines: list[str]) -> None:
    reply = "\n".join(lines)
    spoken = re.sub(r"<think>.*?</think>", "", reply, flags=re.DOTALL)
    assert without_thoughts(reply) == spoken and edits_of(reply) == PATTERN.findall(spoken)


@given(st.text(alphabet="<=>SEARCHRPL \nax1", max_size=300))
def test_any_reply_is_a_program_none_or_a_reason(reply: str) -> None:
    try:
        assert edited(CODE, reply) is None or isinstance(edited(CODE, reply), str)
    except VetError as e:
        assert e.message
