"""Films of a run of ``envolve write``: the best agent, candidates side by side, and one of every candidate of the last
test for the page of the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.llm.reporting.lineage import name_of
from envolve.llm.search.individual import HUMAN, Individual
from envolve.outer.reporting.report import precise
from envolve.outer.shapers.compare_film import Column, columns_of, compare, each, named
from envolve.outer.shapers.report import HUMAN as HUMANS
from envolve.outer.shapers.report import Outcome
from envolve.outer.shapers.video import film

if TYPE_CHECKING:
    from envolve.llm.finals import Result
    from envolve.llm.plan import Plan

FOLDER = "films"  # in the run's folder: one per candidate of the last test, by its name


def film_name(individual: Individual) -> str:
    """i007, and i007_tuned for the same code with other numbers."""
    return name_of(individual) + "_tuned" * (individual.tuned is not None)


def outcome_of(i: Individual) -> Outcome:
    """What films need to know: its name, its scores, and why it has none."""
    failure = None
    if i.rejection is not None:
        failure = Failure(f"rejected, {i.rejection[0]}", i.rejection[1], "", -1)
    elif not i.ok:
        failure = Failure("failed", (i.failure or "it has no score").strip().splitlines()[0], "", -1)
    name = HUMANS if i.operator == HUMAN else film_name(i)
    return Outcome(
        Candidate(name),
        None,
        i.agent_scores,
        [],
        failure,
        max(1, len(i.agent_scores)) * (not i.ok),
        [],
        [],
        [],
        {},
        None,
        None,
    )


def columns(result: Result) -> list[Column]:
    """The best, the human's and the worst of the last test, and the newest that failed: in training if there is one,
    else before it. Only the last test's agents are there to be filmed."""
    tested = [outcome_of(f.individual) for f in result.finals]
    lost = [i for i in reversed(result.individuals) if not i.ok]
    lost.sort(key=lambda i: i.rejection is not None)
    ranking = [*tested, *map(outcome_of, lost[:1])]
    places = [tested[result.numbers.index(k)].candidate for k in range(len(tested))]
    return columns_of(ranking, [*places, *(o.candidate for o in ranking[len(tested) :])])


def nodes(result: Result) -> list[Column]:
    """All of the last test."""
    return [
        Column("human's" if f.individual.operator == HUMAN else "", outcome_of(f.individual), number)
        for f, number in zip(result.finals, result.numbers)
    ]


def films_of(plan: Plan, result: Result, path: Path | None) -> tuple[list[Path], list[str]]:
    """Makes them; the first goes to ``path``, or into the run's folder -> files and lines about them. Raises
    VideoError."""
    best, halved, K, seed = result.best, result.halved, plan.settings.retest, plan.settings.seed
    assert best is not None and halved is not None
    scores, unit = best.individual.agent_scores, plan.task.score_unit
    agent = result.numbers[result.finals.index(best)] * K + max(range(K), key=scores.__getitem__)
    score = f"{precise(best.individual.score)} {unit}"
    caption = f"{plan.task.name}, {name_of(best.individual)}: {score}, seed {seed}"
    made = film(path, plan.folder, halved.envs, halved.learner, agent, seed, caption)
    files, lines = [made.path], [f"Film: {made.path} (one episode: {precise(made.score)} {unit})"]
    shown = columns(result)
    if len(shown) > 1:
        files.append(compare(None, plan.folder, halved.envs, halved.learner, shown, K, seed))
        lines.append(f"Film: {files[-1]} ({named(shown)})")
    own = each(plan.folder / FOLDER, halved.envs, halved.learner, nodes(result), K, seed)
    if own:
        lines.append(f"Films of the last test, which envolve report shows: {own[0].parent} ({len(own)})")
    return files, lines
