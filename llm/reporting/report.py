"""Reports of an evolution: tables, pictures, transcript, and the best candidate as files."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from envolve.core import commands
from envolve.core.cleaning import printable
from envolve.envs.physics.task import PhysicsTask
from envolve.llm.reporting.best_code import Recheck, best_code
from envolve.llm.reporting.lineage import lineage_picture, name_of, number_name, score_text, tree_text
from envolve.llm.reporting.pictures import scores_picture
from envolve.llm.reporting.transcript import write_text, write_transcript
from envolve.llm.search.individual import HUMAN, Individual, best_of, ranking
from envolve.outer.reporting.report import number, precise

if TYPE_CHECKING:
    from envolve.llm.finals import Result

MOST_ROWS = 12  # of the table in the summary; ranking.txt has all
FILES = {
    "best.py": "the best code with its numbers, for eval_shapers.py --shapers",
    "best.graph.json": "the same as a checked graph, which runs no Python",
    "ranking.txt": "all that were trained",
    "scores.png": "scores against candidates and environment steps",
    "lineage.txt": "which candidate came from which",
    "lineage.png": "the picture of it",
    "transcript": "prompts, replies and verdicts, from README.md on",
}


def write_report(
    folder: Path,
    result: Result,
    task: type[PhysicsTask],
    title: str,
    recheck: Recheck | None = None,
) -> str:
    """Write FILES and return the summary. Raises OSError, RecordError.

    recheck: traces code in the jail, which shows whether the author's code with tuned numbers is the graph; without it,
    or where it is not, best.py is the graph as Python. The prompts are read from calls.jsonl in the folder.
    """
    title = printable(title)  # names of files may have what nothing can draw or save
    individuals = [i for i in result.individuals if i.operator != HUMAN]
    human, finals = result.human, [f.individual for f in result.finals]
    unit = task.score_unit
    moved = [i for i in finals if i.tuned is not None]
    best = result.best.individual if result.best is not None else best_of(individuals)  # as in result.json
    write_transcript(folder / "transcript", individuals, human, title, unit, folder / "calls.jsonl")
    write_text(folder / "lineage.txt", tree_text(individuals))
    lineage_picture(folder / "lineage.png", individuals, human, title, unit)
    scores_picture(folder / "scores.png", individuals, human, title, unit, moved, result.tunings)
    if best is not None and best.graph_file is not None:
        _write_best(folder, best, individuals, task, recheck)
    write_text(folder / "ranking.txt", _text(individuals, human, finals, best, task, title, len(individuals)))
    there = [(name, what) for name, what in FILES.items() if (folder / name).exists()]
    lines = [_text(individuals, human, finals, best, task, title, MOST_ROWS), *_fresh_text(result, unit)]
    lines += [f"Written to {folder}:", *(f"  {name:<17}{what}" for name, what in there)]
    if (folder / "best.py").exists():
        again = f"{' '.join(commands.typed('eval_shapers.py'))} --task {task.name} --shapers {folder / 'best.py'}"
        lines += ["", "Next:", f"  {again}"]
    return "\n".join(lines)


def _fresh_text(result: Result, unit: str) -> list[str]:
    """What the best is worth, by agents that did not choose it."""
    if not result.fresh:
        return []
    both = [f.individual for f in result.fresh]
    found = ", ".join(f"{name_of(i)} {score_text(i)}" for i in both)
    return [f"By {len(both[0].agent_scores)} more agents each, which no choice has seen, {unit}: {found}", ""]


def _write_best(
    folder: Path, best: Individual, individuals: Sequence[Individual], task: type[PhysicsTask], recheck: Recheck | None
) -> None:
    assert best.graph_file is not None
    original = next((i for i in individuals if i.id == best.id), best)
    how = "; its numbers were tuned" if best.tuned else ""
    about = f"{name_of(best)} of an evolution for {task.name}: {precise(best.score)} {task.score_unit}{how}."
    written: Mapping[str, Any] | None = original.graph_file or best.graph_file
    if original.tuned:  # by --tune_every: what the code gives, and not what became of it
        written = None if recheck is None else recheck(original.code)
    names = {*task.described(1), "action", "previous_action"}
    write_text(folder / "best.py", best_code(best.code, written, best.graph_file, recheck, names, about))
    write_text(folder / "best.graph.json", best.graph_file.text())


# ------------------------------------------------------------------------------------------------------------- tables


def verdicts_text(individuals: Sequence[Individual]) -> str:
    """Formats e.g. 36 candidates: 24 trained, 1 failed in training, 11 rejected (allowlist 6, trace 5)"""
    written = [i for i in individuals if i.operator != HUMAN]
    stages = Counter(i.rejection[0] for i in written if i.rejection is not None)
    failed = sum(i.rejection is None and i.failure is not None for i in written)
    parts = [f"{sum(i.ok for i in written)} trained"]
    parts += [f"{failed} failed in training"] * bool(failed)
    if stages:
        parts.append(f"{stages.total()} rejected ({', '.join(f'{s} {n}' for s, n in stages.most_common())})")
    return f"{len(written)} candidate{'s' * (len(written) != 1)}: {', '.join(parts)}"


def ranking_table(
    individuals: Sequence[Individual],
    human: Individual | None,
    title: str,
    unit: str,
    most: int | None = None,
    in_order: bool = False,
) -> Table:
    """Table of individuals with a score, best first, the human's in bold. in_order: they are in order already, so that
    equals stay as they are."""
    scored = [i for i in individuals if i.ok and i.operator != HUMAN] if in_order else ranking(individuals)
    shown = scored[:most]
    if human is not None and human.ok:
        shown = sorted([*shown, human], key=lambda i: -i.score)
    islands, models = len({i.island for i in scored}) > 1, len({i.model for i in scored}) > 1
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("candidate")
    for heading in ("how", "parents", *["island"] * islands, *["model"] * models):
        table.add_column(heading, overflow="fold")
    for heading in (f"score, {unit}", "95 % interval", "environment steps"):
        table.add_column(heading, justify="right")
    ranks = {id(i): str(rank) for rank, i in enumerate(scored, 1)}
    for i in shown:
        interval = "" if i.interval is None else f"{precise(i.interval[0])} to {precise(i.interval[1])}"
        how = "" if i.operator == HUMAN else f"{i.operator}, tuned" if i.tuned else i.operator
        cells = [ranks.get(id(i), ""), name_of(i), how, " ".join(map(number_name, i.parents))]
        cells += [str(i.island)] * islands + [i.model] * models
        cells += [precise(i.score), interval, f"{i.steps:,}"]
        table.add_row(*map(Text, cells), style="bold" if i.operator == HUMAN else "")
    return table


def _text(
    individuals: Sequence[Individual],
    human: Individual | None,
    finals: Sequence[Individual],
    best: Individual | None,
    task: type[PhysicsTask],
    title: str,
    most: int,
) -> str:
    file = io.StringIO()
    console = Console(file=file, width=140)
    line = "nothing has a score"
    if best is not None:
        line = f"best {name_of(best)}, {precise(best.score)} {task.score_unit}"
    own = next((i for i in finals if i.operator == HUMAN), human)
    if best is not None and own is not None and own.ok:
        line += f"; human {precise(own.score)}"
    console.print(f"{title}: {line}", markup=False, highlight=False, soft_wrap=True)
    steps = sum(i.steps for i in individuals)
    console.print(f"{verdicts_text(individuals)}; {number(steps)} environment steps", highlight=False, soft_wrap=True)
    if finals:
        reference = next((i for i in finals if i.operator == HUMAN), None)
        agents = max(len(i.agent_scores) for i in finals)
        heading = f"Last test: {agents} fresh agent{'s' * (agents != 1)} each"
        console.print("")
        console.print(ranking_table(finals, reference, heading, task.score_unit, in_order=True))
    if any(i.ok for i in individuals):
        console.print("")
        console.print(ranking_table(individuals, human, "Selection", task.score_unit, most))
        more = sum(i.ok for i in individuals) - most
        if more > 0:
            console.print(f"... and {more} more in ranking.txt", highlight=False)
    console.print(f"Score: {task.score_meaning}. {HUMAN}: the task's own shapers.", highlight=False, soft_wrap=True)
    return "\n".join(row.rstrip() for row in file.getvalue().split("\n"))
