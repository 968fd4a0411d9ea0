"""MAP-Elites (Mouret and Clune 2015, https://arxiv.org/abs/1504.04909): the best of every kind is kept, and any of them
may be a parent.

The kinds are cells of a grid: how large a candidate's graphs are, and how early in its training the score was half way
to where it ended. Small and large rewards, and those that teach early and late, do not compete with each other.

``one`` proposes a single attempt from whatever is known, so that an asynchronous run (``llm/steady.py``) can ask at any
time. All randomness is a function of the seed and of the attempt's number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from envolve.llm.search.bandit import choose_models
from envolve.llm.search.greedy import Extras, Memory, drawn_rank, repairable
from envolve.llm.search.individual import (
    CROSSOVER,
    IMPROVE,
    INITIAL,
    REPAIR,
    SCORE,
    Individual,
    Prompts,
    Proposal,
    ranking,
)

STREAM = 0x656C  # of random numbers
SMALLEST, SIZES = 8, 6  # operations in the first column; columns, each for twice as many
PACES = 3  # rows: half the gain within the first third of the training, the second, the last
SHARES = {IMPROVE: 0.55, CROSSOVER: 0.25, INITIAL: 0.10, REPAIR: 0.10}
RECENT = 8  # failures among the last so many attempts are repaired, and named in prompts

Cell = tuple[int, int]


def cell(individual: Individual) -> Cell:
    """(size, pace) of a candidate that has a score."""
    return _size(individual), _pace(individual.curves.get(SCORE, []))


def _size(i: Individual) -> int:
    graphs = {} if i.graph_file is None else i.graph_file["functions"]
    operations = sum(len(graph["nodes"]) for graph in graphs.values()) if graphs else len(i.code.split())
    return max(0, min(SIZES - 1, math.ceil(math.log2(max(operations, 1) / SMALLEST))))


def _pace(curve: Sequence[float]) -> int:
    values = [x for x in curve if math.isfinite(x)]
    if len(values) < 2 or values[-1] <= values[0]:
        return PACES - 1  # it never rose
    half = values[0] + (values[-1] - values[0]) / 2
    first = next(k for k, x in enumerate(values) if x >= half)
    return min(PACES - 1, first * PACES // len(values))


def elites(individuals: Sequence[Individual]) -> dict[Cell, Individual]:
    """The best of each cell, the earlier of equals."""
    out: dict[Cell, Individual] = {}
    for i in ranking(individuals):
        out.setdefault(cell(i), i)
    return out


class Elites(Memory):
    """samples: per iteration."""

    def __init__(
        self,
        prompts: Prompts,
        samples: int,
        models: Sequence[str],
        seed: int,
        extras: Extras = Extras(),  # noqa: B008
    ) -> None:
        super().__init__(extras)
        if samples < 1 or not models:
            raise ValueError(f"found {samples} samples of {len(models)} models, expected at least one of each")
        self.prompts, self.samples, self.models, self.seed = prompts, samples, tuple(models), seed

    def ask(self, iteration: int) -> list[Proposal]:
        known = self.before(iteration)
        models = choose_models(self.models, known, self.samples)
        first = iteration * self.samples
        human = self.human(iteration)
        return self.noted([self._one(first + k, model, known, human) for k, model in enumerate(models)], known)

    def one(self, number: int, under_way: Sequence[str] = ()) -> Proposal:
        """Attempt ``number``, from all that has been told so far. under_way: models of the attempts that have not."""
        later = 1 + max((i.iteration for i in self._told.values()), default=0)
        known = self.before(later)
        (model,) = choose_models(self.models, known, 1, under_way)
        return self.noted([self._one(number, model, known, self.human(later))], known)[0]

    def _one(self, number: int, model: str, known: Sequence[Individual], human: Individual | None) -> Proposal:
        rng = np.random.default_rng([self.seed, STREAM, number])
        operator = str(rng.choice(list(SHARES), p=list(SHARES.values())))
        recent = [i for i in known if i.call >= 0][-RECENT:]
        living = ranking(elites(known).values())
        broken = repairable(recent)
        if broken and (operator == REPAIR or (not living and number % 2)):
            chosen = broken[int(rng.integers(len(broken)))]
            return Proposal(REPAIR, (chosen.id,), 0, model, self.prompts.repair(chosen))
        if not living or operator == INITIAL:
            return Proposal(INITIAL, (), 0, model, self.prompts.initial())
        parent = living[_by_rank(rng, len(living))]
        mates = [i for i in living if i is not parent]
        if operator == CROSSOVER and mates:
            parents = [parent, mates[int(rng.integers(len(mates)))]]
            messages = self.prompts.crossover(parents, human)
            return Proposal(CROSSOVER, tuple(p.id for p in parents), 0, model, messages)
        operator, messages = self.improved(number, parent, human, [i for i in recent if not i.ok])
        return Proposal(operator, (parent.id,), 0, model, messages)


def _by_rank(rng: np.random.Generator, count: int) -> int:
    """Rank 0, 1, ...: half of the draws are even, half prefer the better."""
    return int(rng.integers(count)) if rng.random() < 0.5 else drawn_rank(rng, count)
