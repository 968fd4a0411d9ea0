"""Eureka's loop (Ma et al. 2023, https://arxiv.org/abs/2310.12931, algorithm 1): in every iteration a fixed number of
samples of one message, which shows the best attempt so far and what became of it.

Unlike the original, in two points. The best is kept for ever: there it is the best of the last iteration, be it worse
than its parent. And when nothing of an iteration ran, there the same message is sent again; here half of the samples
are repairs of what did not run, each with its own message, and the rest start afresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from envolve.llm.search.bandit import choose_models
from envolve.llm.search.individual import (
    CALL,
    EDIT,
    HUMAN,
    IMPROVE,
    INITIAL,
    REPAIR,
    Individual,
    Messages,
    Prompts,
    Proposal,
    best_of,
)
from envolve.llm.search.notes import with_notes


@dataclass(frozen=True)
class Extras:
    """What any search may do beside. edits: share of improvements that are asked for as changes of single places;
    notes: models leave notes to later attempts; human: code of the human's shapers, which then are an individual of the
    population, once they have a score."""

    edits: float = 0.0
    notes: bool = False
    human: str = ""


class Memory:
    """Individuals told to a search, by id."""

    prompts: Any

    def __init__(self, extras: Extras = Extras()) -> None:
        if not 0 <= extras.edits <= 1:
            raise ValueError(f"edits: found {extras.edits}, expected a share between 0 and 1")
        self._told: dict[int, Individual] = {}
        self.extras = extras

    def tell(self, individuals: Sequence[Individual]) -> None:
        """Adds individuals in any order; a known one is replaced."""
        self._told.update({i.id: i for i in individuals})

    def best(self) -> Individual | None:
        return best_of(self._told.values())

    def before(self, iteration: int) -> list[Individual]:
        """Individuals of earlier iterations that a model wrote, and the human's if it is one of the population, in the
        order of ids."""
        earlier = [i for i in self._told.values() if i.iteration < iteration and i.operator != HUMAN]
        return self._adopted(iteration) + sorted(earlier, key=lambda i: i.id)

    def _adopted(self, iteration: int) -> list[Individual]:
        human = self.human(iteration)
        if human is None or not human.ok or not self.extras.human:
            return []
        return [replace(human, operator=INITIAL, code=self.extras.human)]

    def improved(
        self, k: int, parent: Individual, human: Individual | None, failed: Sequence[Individual]
    ) -> tuple[str, Messages]:
        """Operator and messages of the k-th improvement: every so many are edits."""
        share = self.extras.edits
        if int((k + 1) * share) > int(k * share):
            return EDIT, self.prompts.edit(parent, human, failed)
        return IMPROVE, self.prompts.improve(parent, human, failed)

    def noted(self, proposals: list[Proposal], known: Sequence[Individual]) -> list[Proposal]:
        """The same with the notes of earlier attempts."""
        if not self.extras.notes:
            return proposals
        return [replace(p, messages=with_notes(p.messages, known)) for p in proposals]

    def human(self, iteration: int) -> Individual | None:
        """Latest reference of earlier iterations."""
        known = [i for i in self._told.values() if i.iteration < iteration and i.operator == HUMAN]
        return max(known, key=lambda i: (i.iteration, i.id), default=None)


class Greedy(Memory):
    """samples: per iteration. A bandit divides them among several models (bandit.py)."""

    def __init__(
        self,
        prompts: Prompts,
        samples: int,
        models: Sequence[str],
        extras: Extras = Extras(),
    ) -> None:
        super().__init__(extras)
        if samples < 1 or not models:
            raise ValueError(f"found {samples} samples of {len(models)} models, expected at least one of each")
        self.prompts, self.samples, self.models = prompts, samples, tuple(models)

    def ask(self, iteration: int) -> list[Proposal]:
        known = self.before(iteration)
        models = choose_models(self.models, known, self.samples)
        best, last = best_of(known), [i for i in known if i.iteration == iteration - 1 and i.call >= 0]
        broken: list[Individual] = []
        if last and not any(i.ok for i in last):
            broken = repairable(last)[: (self.samples + 1) // 2]
        out = [Proposal(REPAIR, (b.id,), 0, model, self.prompts.repair(b)) for b, model in zip(broken, models)]
        rest = models[len(out) :]
        if best is None:
            return self.noted(out + [Proposal(INITIAL, (), 0, m, self.prompts.initial()) for m in rest], known)
        failed, human = [i for i in last if not i.ok], self.human(iteration)
        for k, model in enumerate(rest):
            operator, messages = self.improved(k, best, human, failed)
            out.append(Proposal(operator, (best.id,), 0, model, messages))
        return self.noted(out, known)


def drawn_rank(rng: np.random.Generator, count: int) -> int:
    """Draws rank 0, 1, ...: the k-th best with a probability proportional to 1 / k, whatever the scores are."""
    weights = 1 / np.arange(1, count + 1)
    return int(rng.choice(count, p=weights / weights.sum()))


def repairable(individuals: Sequence[Individual]) -> list[Individual]:
    """Failed individuals with a message that a model can act on, best stage first: failed in training, then later
    stages of vetting. One of each code."""
    stages = ("extract", "novelty", "allowlist", "limits", "trace", "graph", "smoke")
    candidates = [i for i in individuals if not i.ok and (i.failure or (i.rejection and i.rejection[0] != CALL))]

    def progress(i: Individual) -> tuple[int, int]:
        stage = i.rejection[0] if i.rejection else ""
        return -(stages.index(stage) if stage in stages else len(stages)), i.id

    distinct = {(i.code or i.reply): i for i in sorted(candidates, key=progress, reverse=True)}
    return sorted(distinct.values(), key=progress)
