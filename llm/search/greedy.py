"""Eureka's loop (Ma et al. 2023, https://arxiv.org/abs/2310.12931, algorithm 1): in every iteration a fixed number of
samples of one message, which shows the best attempt so far and what became of it.

Unlike the original, in two points. The best is kept for ever: there it is the best of the last iteration, be it worse
than its parent. And when nothing of an iteration ran, there the same message is sent again; here half of the samples
are repairs of what did not run, each with its own message, and the rest start afresh.
"""

from __future__ import annotations

from collections.abc import Sequence

from envolve.llm.search.bandit import choose_models
from envolve.llm.search.individual import CALL, HUMAN, IMPROVE, INITIAL, REPAIR, Individual, Prompts, Proposal, best_of


class Memory:
    """Individuals told to a search, by id."""

    def __init__(self) -> None:
        self._told: dict[int, Individual] = {}

    def tell(self, individuals: Sequence[Individual]) -> None:
        """Adds individuals in any order; a known one is replaced."""
        self._told.update({i.id: i for i in individuals})

    def best(self) -> Individual | None:
        return best_of(self._told.values())

    def before(self, iteration: int) -> list[Individual]:
        """Individuals of earlier iterations that a model wrote, in the order of ids."""
        earlier = [i for i in self._told.values() if i.iteration < iteration and i.operator != HUMAN]
        return sorted(earlier, key=lambda i: i.id)

    def human(self, iteration: int) -> Individual | None:
        """Latest reference of earlier iterations."""
        known = [i for i in self._told.values() if i.iteration < iteration and i.operator == HUMAN]
        return max(known, key=lambda i: (i.iteration, i.id), default=None)


class Greedy(Memory):
    """samples: per iteration. A bandit divides them among several models (bandit.py)."""

    def __init__(self, prompts: Prompts, samples: int, models: Sequence[str]) -> None:
        super().__init__()
        if samples < 1 or not models:
            raise ValueError(f"found {samples} samples of {len(models)} models, expected at least one of each")
        self.prompts, self.samples, self.models = prompts, samples, tuple(models)

    def ask(self, iteration: int) -> list[Proposal]:
        known = self.before(iteration)
        models = choose_models(self.models, known, self.samples)
        best, last = best_of(known), [i for i in known if i.iteration == iteration - 1]
        broken: list[Individual] = []
        if last and not any(i.ok for i in last):
            broken = repairable(last)[: (self.samples + 1) // 2]
        out = [Proposal(REPAIR, (b.id,), 0, model, self.prompts.repair(b)) for b, model in zip(broken, models)]
        rest = models[len(out) :]
        if best is None:
            return out + [Proposal(INITIAL, (), 0, model, self.prompts.initial()) for model in rest]
        messages = self.prompts.improve(best, self.human(iteration), [i for i in last if not i.ok])
        return out + [Proposal(IMPROVE, (best.id,), 0, model, messages) for model in rest]


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
