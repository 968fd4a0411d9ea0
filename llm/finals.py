"""The end of an evolution: numbers of the best are tuned, finalists trained anew; what comes out of it all."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from envolve.agents.shaped.halving import Halved
from envolve.llm.fitness import FINAL, FRESH, Worth, candidate_of, judge
from envolve.llm.search.individual import HUMAN, Individual
from envolve.llm.settings import Settings, Watcher
from envolve.llm.tune import Tuned, tune
from envolve.llm.tune_workers import Workers
from envolve.llm.vetting.literals import signs


class Final(NamedTuple):
    """Finalist with fresh agents; its scores are those of the final test."""

    individual: Individual  # a copy
    worth: Worth


@dataclass
class Result:
    """Result of an evolution."""

    individuals: list[Individual]  # without the human's
    human: Individual
    finals: list[Final]  # the best first, the human's among them
    halved: Halved | None  # learner and environments of the last test
    numbers: list[int]  # of the finals, in the order of its candidates
    tunings: dict[int, Tuned]  # by id
    stopped: str  # why it ended before its time, or ""
    fresh: list[Final] = field(default_factory=list)  # the best of a model and the human's, as ``fresh_test`` has them

    @property
    def best(self) -> Final | None:
        """Best individual written by a model."""
        return next((f for f in self.finals if f.individual.operator != HUMAN and f.individual.ok), None)

    @property
    def steps(self) -> int:
        """Environment steps of selection and tuning, without the human's and those of the final test."""
        return sum(i.steps for i in self.individuals)


def tune_numbers(
    s: Settings, folder: Path, individual: Individual, watcher: Watcher
) -> tuple[Individual, Tuned] | None:
    """Same code with tuned constants, and how they were found; None if it has none. The steps are charged to the
    individual."""
    assert individual.graph_file is not None and s.tune is not None
    candidate = candidate_of(individual)
    if candidate.params is None:
        watcher.note(f"i{individual.id:03d} has no numbers to tune")
        return None

    def report(generation: int, mean: float, best: float) -> None:
        watcher.tuning(individual, generation, mean, best)

    log_file = folder / f"tune_{individual.id}.jsonl"
    with contextlib.ExitStack() as stack:
        workers = None
        if s.tune.workers:
            workers = Workers(s.training, individual.graph_file, individual.id, folder, s.tune.workers)
            stack.enter_context(workers)
        tuned = tune(s.training, candidate, s.tune, s.seed, individual.id, log_file, report, workers)
    individual.steps += tuned.steps
    values = tuned.params.tolist()
    graph_file = individual.graph_file.with_values(values)
    own = signs(individual.graph_file.get("source", ""), individual.graph_file["params"])
    moved = {name: sign * value for name, sign, value in zip(candidate.param_names, own, values)}
    return replace(individual, graph_file=graph_file, tuned=moved), tuned


def last_test(s: Settings, entries: list[Individual], watcher: Watcher) -> tuple[list[Final], Halved, list[int]]:
    """Trains fresh agents for the finalists and the human's shapers -> these, best first, and ``Result``'s halved and
    numbers."""
    watcher.note(f"last test: {s.retest} fresh agents for each of {len(entries)}")
    training = replace(s.training, agents=s.retest, eta=1)
    worths, halved = judge(training, [candidate_of(i) for i in entries], s.seed, FINAL)
    finals = [_tested(i, w) for i, w in zip(entries, worths)]
    order = sorted(range(len(finals)), key=lambda k: (not finals[k].individual.ok, -_or_zero(worths[k].score), k))
    return [finals[k] for k in order], halved, order


def fresh_test(s: Settings, finals: Sequence[Final], watcher: Watcher) -> list[Final]:
    """Agents that no choice has seen, for the best individual of a model and for the human's. The last test chose the
    best among several, so its own figure of it is too good. []: there was nothing to choose."""
    written = [f.individual for f in finals if f.individual.operator != HUMAN and f.individual.ok]
    if len(written) < 2:
        return []
    entries = [written[0], *(f.individual for f in finals if f.individual.operator == HUMAN)]
    watcher.note(f"{s.retest} more agents for each of {len(entries)}, which no choice has seen")
    worths, _ = judge(replace(s.training, agents=s.retest, eta=1), [candidate_of(i) for i in entries], s.seed, FRESH)
    return [_tested(i, w) for i, w in zip(entries, worths)]


def _tested(i: Individual, w: Worth) -> Final:
    return Final(replace(i, score=w.score, interval=w.interval, agent_scores=w.agent_scores, failure=w.failure), w)


def _or_zero(score: float) -> float:
    return score if math.isfinite(score) else 0.0


def verdicts(individuals: Sequence[Individual]) -> dict[str, int]:
    """Number of candidates trained, failed in training, and rejected at each stage."""
    names = [i.rejection[0] if i.rejection else "failed" if i.failure else "trained" for i in individuals]
    return dict(Counter(names).most_common())
