"""Prompts and replies as Markdown for GitHub: transcript/README.md and a file per attempt."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from envolve.core.cleaning import printable
from envolve.envs.worlds.file import write_atomic
from envolve.llm.models.record import read_recording
from envolve.llm.reporting.lineage import name_of, number_name, score_text
from envolve.llm.search.individual import HUMAN, SCORE, Individual
from envolve.outer.reporting.report import precise

Messages = Sequence[tuple[str, str]]  # (role, content)


def fenced(text: str, language: str = "text") -> str:
    """Code block with a fence longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def one_line(text: str, most: int = 120) -> str:
    """Text for a table cell: no line breaks, no bars, no markup."""
    text = " ".join(text.split())
    text = text if len(text) <= most else text[: most - 3] + "..."
    return re.sub(r"([\\`*_\[\]<>|#!&])", r"\\\1", text)


def write_transcript(
    folder: Path, individuals: Sequence[Individual], human: Individual | None, title: str, unit: str, calls: Path
) -> None:
    """Write ``folder`` from the individuals and the record of the calls (calls.jsonl; prompts are left out if it is not
    there). Raises OSError, RecordError."""
    folder.mkdir(parents=True, exist_ok=True)
    prompts: dict[int, Messages] = {}
    if calls.exists():
        for index, entry in read_recording(calls).entries.items():
            messages = (entry.request or {}).get("messages", [])
            prompts[index] = [(m["role"], printable(m["content"])) for m in messages]  # they quote replies
    written = sorted((i for i in individuals if i.operator != HUMAN), key=lambda i: i.id)
    known = {i.id for i in written}
    for i in written:
        text = page(i, human, unit, prompts.get(i.calls[-1]), known)
        write_text(folder / f"{name_of(i)}.md", text)
    write_text(folder / "README.md", index_page(written, human, title, unit))


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8, with odd characters in names of files and tasks replaced. Raises OSError."""
    write_atomic(str(path), text.encode("utf-8", "replace"))


def index_page(written: Sequence[Individual], human: Individual | None, title: str, unit: str) -> str:
    """Table of all attempts."""
    rows = [f"# {one_line(title)}", ""]
    if human is not None and human.ok:
        rows += [f"The task's own shapers: {score_text(human)} {unit}.", ""]
    rows += [f"| attempt | iteration | how | parents | model | score, {unit} | |", "| --- " * 7 + "|"]
    for i in written:
        parents = " ".join(_link(p) for p in i.parents)
        why = one_line((i.rejection or ("", i.failure or ""))[1])
        cells = (_link(i.id), str(i.iteration + 1), i.operator, parents, one_line(i.model), score_text(i), why)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def page(
    i: Individual, human: Individual | None, unit: str, prompt: Messages | None, known: set[int] | None = None
) -> str:
    """Page of one attempt: prompt (of the last call), reply, verdict, scores."""
    parents = ", ".join(_link(p) if known is None or p in known else number_name(p) for p in i.parents)
    facts = [f"iteration {i.iteration + 1}", f"island {i.island}", i.operator + (f" of {parents}" if parents else "")]
    out = [f"# {name_of(i)}: {score_text(i)}{f' {unit}' if i.ok else ''}", ""]
    out += [
        f"{', '.join(facts)}; model {one_line(i.model) or 'unknown'}; call {i.calls[-1]}. [All attempts](README.md)",
        "",
    ]
    if prompt is None:
        out += ["The prompt is not in calls.jsonl.", ""]
    for role, content in prompt or ():
        lines = content.count("\n") + 1
        head = f"<details><summary>{role} ({lines} line{'s' * (lines > 1)})</summary>"
        out += [head, "", fenced(content), "</details>", ""]
    out += ["## Reply", "", fenced(i.reply) if i.reply else "There was none.\n"]
    out += ["## Verdict", ""]
    if i.rejection is not None:
        out += [f"Rejected ({i.rejection[0]}):", "", fenced(i.rejection[1])]
    elif i.failure is not None:
        out += ["Failed in training:", "", fenced(i.failure)]
    elif i.ok:
        out += [_scores(i, human, unit)]
    else:
        out += ["Not trained.\n"]
    out += [f"- {one_line(note, 300)}" for note in i.notes] + [""] * bool(i.notes)
    for k, before in enumerate(i.repairs, 1):
        stage, why = before["rejection"] or ("in training", before["failure"] or "")
        out += [f"## Before repair {k}, which is call {before['call']}", "", f"{one_line(stage)}:", "", fenced(why)]
        out += [fenced(before["code"] or before["reply"], "python")]
    if i.code:
        out += ["## Code", "", fenced(i.code, "python")]
    if i.tuned:
        out += ["## Tuned numbers", "", "| number | value |", "| --- | --- |"]
        out += [f"| {one_line(name)} | {precise(value)} |" for name, value in i.tuned.items()] + [""]
    return "\n".join(out)


def _scores(i: Individual, human: Individual | None, unit: str) -> str:
    lines = [
        f"Score {score_text(i)} {unit}"
        + (f", agents {', '.join(map(precise, i.agent_scores))}." if len(i.agent_scores) > 1 else "."),
        f"{i.steps:,} environment steps.",
    ]
    if human is not None and human.ok:
        lines.append(f"The task's own shapers: {score_text(human)}.")
    out = ["  \n".join(lines), ""]
    if any(i.curves.values()):
        out += ["| per training step | first | last | min | mean | max |", "| --- " * 6 + "|"]
        for name, values in i.curves.items():
            finite = [x for x in values if math.isfinite(x)]
            if finite:
                row = (finite[0], finite[-1], min(finite), sum(finite) / len(finite), max(finite))
                label = "true score" if name == SCORE else one_line(name)
                out.append(f"| {label} | {' | '.join(map(precise, row))} |")
        out.append("")
    return "\n".join(out)


def _link(number: int) -> str:
    return HUMAN if number < 0 else f"[i{number:03d}](i{number:03d}.md)"
