"""Prompts and replies as Markdown."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from envolve.llm.models.record import Record
from envolve.llm.reporting.transcript import fenced, one_line, page, write_transcript
from tests.llm.attempts import evolution, human


def inside(markdown: str) -> list[str]:
    """The content of the first fenced block and what is after it, after CommonMark: a block ends at a line of at least
    as many backticks as it began with, and nothing else."""
    first, *lines = markdown.split("\n")
    count = len(first) - len(first.lstrip("`"))
    for k, line in enumerate(lines):
        if re.fullmatch(rf" {{0,3}}`{{{count},}}[ \t]*", line):
            return ["\n".join(lines[:k]), "\n".join(lines[k + 1 :])]
    return ["\n".join(lines), ""]


@given(st.text(alphabet="`~ab \n<>#", max_size=60))
@example("```python\nx = 1\n```\n")
@example("`````\n</details>\n````")
def test_nothing_ends_a_block_but_its_end(text):
    content, rest = inside(fenced(text))
    assert content == text.rstrip() and rest == ""


@given(st.text(max_size=200))
def test_a_cell_of_a_table_stays_one(text):
    cell = one_line(text)
    assert "\n" not in cell and not re.search(r"(?<!\\)(?:\\\\)*[|<>`]", cell)


def test_a_page_tells_what_was_asked_and_what_came_of_it():
    i = next(i for i in evolution(3, 8) if i.ok and i.parents)
    i.reply = "Here:\n```python\nx\n```"
    text = page(replace(i, tuned={"a_b": 2.0}), human(), "m/s", [("system", "You are"), ("user", "Write\n```\n")])
    assert f"improve of [i{i.parents[0]:03d}](i{i.parents[0]:03d}.md)" in text
    assert "<details><summary>user (3 lines)</summary>" in text
    assert "````text\nHere:\n```python\nx\n```\n````" in text
    assert "| true score | 0 |" in text and "| speed\\|x | 0.1 |" in text
    assert "| a\\_b | 2 |" in text and "The task's own shapers: 1 [0.8, 1.2]" in text


def test_a_page_of_one_that_was_refused_or_never_came():
    i = replace(evolution(1, 1)[0], reply="", rejection=("call", "no reply: <timeout>"), score=float("nan"))
    text = page(i, None, "m/s", None)
    assert "There was none." in text and "```text\nno reply: <timeout>\n```" in text
    assert "The prompt is not in calls.jsonl" in text


def test_prompts_come_from_the_record(tmp_path):
    two = evolution(1, 2)
    calls = tmp_path / "calls.jsonl"
    record = Record(calls, ["m"])
    request = {"model": "m", "messages": [{"role": "user", "content": "Make it run"}]}
    record.append({"index": 1, "sha256": "x", "request": request, "failure": "busy"})
    write_transcript(tmp_path / "transcript", two, human(), "Ant | title", "m/s", calls)
    assert "Make it run" in (tmp_path / "transcript" / "i001.md").read_text()
    assert "Make it run" not in (tmp_path / "transcript" / "i000.md").read_text()
    index = (tmp_path / "transcript" / "README.md").read_text()
    assert index.startswith("# Ant \\| title\n") and "[i001](i001.md)" in index


def test_a_repair_is_shown_with_its_own_prompt(tmp_path):
    (one,) = evolution(1, 1)
    one.repairs = [{"call": 90, "reply": "old", "code": "", "rejection": ("trace", "line 1"), "failure": None}]
    record = Record(tmp_path / "calls.jsonl", ["m"])
    for index, asked in ((one.call, "the first question"), (90, "the repair's question")):
        request = {"model": "m", "messages": [{"role": "user", "content": asked}]}
        record.append({"index": index, "sha256": "x", "request": request, "failure": "busy"})
    write_transcript(tmp_path / "transcript", [one], human(), "title", "m/s", tmp_path / "calls.jsonl")
    text = (tmp_path / "transcript" / "i000.md").read_text()
    assert "the repair's question" in text and "the first question" not in text and "call 90" in text
