"""Several populations that evolve side by side and exchange their best along a ring (the island model: Tanese 1989;
for programs written by language models FunSearch, Romera-Paredes et al. 2023,
https://doi.org/10.1038/s41586-023-06924-6).

Beside Eureka's loop (greedy.py) this keeps several ideas alive: an island's attempts have parents of that island,
chosen by rank, and may cross two of them or one with another island's.

All randomness is a function of (seed, iteration, island), and the populations one of the individuals told: a resumed
search asks what the interrupted one would have asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envolve.llm.search.bandit import choose_models
from envolve.llm.search.greedy import Extras, Memory, drawn_rank, repairable
from envolve.llm.search.individual import (
    CROSSOVER,
    IMPROVE,
    INITIAL,
    REPAIR,
    Individual,
    Messages,
    Prompts,
    Proposal,
    ranking,
)
from envolve.outer.search.nes import ISLANDS, generator


@dataclass(frozen=True)
class Mix:
    """Relative frequency of the operators. One without suitable parents is replaced by ``improve``, and that by
    ``initial``."""

    improve: float = 0.5
    crossover: float = 0.3
    initial: float = 0.1
    repair: float = 0.1
    across: float = 0.3  # share of crossovers whose second parent comes from another island

    def __post_init__(self) -> None:
        if min(self.weights) < 0 or sum(self.weights) <= 0 or not 0 <= self.across <= 1:
            raise ValueError(f"found {self}, expected weights of at least 0, not all 0, and across in [0, 1]")

    @property
    def weights(self) -> tuple[float, ...]:
        return self.improve, self.crossover, self.initial, self.repair


class Islands(Memory):
    """samples: per iteration, dealt out to the islands in turn, from where the last iteration left off. survivors: how
    many an island keeps. migration_every: after so many iterations the best of each island joins the next; 0: never."""

    def __init__(
        self,
        prompts: Prompts,
        samples: int,
        models: Sequence[str],
        seed: int,
        islands: int = 4,
        migration_every: int = 2,
        survivors: int = 8,
        mix: Mix = Mix(),
        extras: Extras = Extras(),  # noqa: B008  frozen
    ) -> None:
        super().__init__(extras)
        for name, value, least in (
            ("islands", islands, 1), ("samples", samples, 1), ("models", len(models), 1), ("survivors", survivors, 1),
            ("migration_every", migration_every, 0),
        ):  # fmt: skip
            if value < least:
                raise ValueError(f"{name}: found {value}, expected at least {least}")
        self.prompts, self.islands, self.samples, self.models = prompts, islands, samples, tuple(models)
        self.seed, self.migration_every, self.survivors, self.mix = seed, migration_every, survivors, mix

    def ask(self, iteration: int) -> list[Proposal]:
        known, human = self.before(iteration), self.human(iteration)
        populations = self.populations(iteration)
        models = choose_models(self.models, known, self.samples)
        first = iteration * self.samples  # the number of the first sample in the run
        rngs = [generator(self.seed, ISLANDS, iteration * self.islands + k) for k in range(self.islands)]
        broken = [
            repairable([i for i in known if i.island == k and self._asked_last(i, iteration)])
            for k in range(self.islands)
        ]
        out: list[Proposal] = []
        for k, model in enumerate(models):
            island, turn = (first + k) % self.islands, k // self.islands
            operator = self._drawn(rngs[island])
            if not populations[island]:  # nothing has run here yet: as in the greedy search, half are repairs
                operator = (REPAIR, INITIAL)[turn % 2]
            operator, parents = self._parents(operator, rngs[island], island, populations, broken[island])
            failed = [i for i in known if i.iteration == iteration - 1 and i.island == island and not i.ok]
            if operator == IMPROVE:
                operator, messages = self.improved(first + k, parents[0], human, failed)
            else:
                messages = self._messages(operator, parents, human)
            out.append(Proposal(operator, tuple(p.id for p in parents), island, model, messages))
        return self.noted(out, known)

    def _asked_last(self, i: Individual, iteration: int) -> bool:
        """True if it is of the last iteration in which its island had a turn."""
        first = iteration * self.samples
        last = max((n for n in range(max(0, first - self.islands), first) if n % self.islands == i.island), default=-1)
        return i.iteration == last // self.samples

    def populations(self, iteration: int) -> list[list[Individual]]:
        """Population of each island when this iteration is asked for, best first."""
        known = self.before(iteration)
        out: list[list[Individual]] = [[] for _ in range(self.islands)]
        for k in range(iteration):
            for island, living in enumerate(out):
                new = [i for i in known if i.iteration == k and i.island == island]
                out[island] = ranking([*living, *new])[: self.survivors]
            if self.migration_every and (k + 1) % self.migration_every == 0:
                best = [living[:1] for living in out]  # before the first migration
                for island, living in enumerate(out):
                    of = {i.id: i for i in [*living, *best[island - 1]]}
                    out[island] = ranking(of.values())[: self.survivors]
        return out

    def _drawn(self, rng: np.random.Generator) -> str:
        weights = np.asarray(self.mix.weights)
        return (IMPROVE, CROSSOVER, INITIAL, REPAIR)[int(rng.choice(4, p=weights / weights.sum()))]

    def _parents(
        self,
        operator: str,
        rng: np.random.Generator,
        island: int,
        populations: list[list[Individual]],
        broken: list[Individual],
    ) -> tuple[str, list[Individual]]:
        """Parents of the operator, and its replacement if there are none. ``broken``: candidates for repair; the chosen
        one is removed, so that none is repaired twice."""
        living = populations[island]
        if operator == REPAIR and broken:
            return REPAIR, [broken.pop(0)]
        if not living or operator == INITIAL:
            return INITIAL, []
        first = living[drawn_rank(rng, len(living))]
        if operator == CROSSOVER:
            own = {i.id for i in living}  # migrants included
            strangers = {i.id: i for other in populations for i in other if i.id not in own}
            mates = [i for i in living if i.id != first.id]
            if strangers and (not mates or rng.random() < self.mix.across):
                mates = ranking(strangers.values())
            if mates:
                return CROSSOVER, [first, mates[drawn_rank(rng, len(mates))]]
        return IMPROVE, [first]

    def _messages(self, operator: str, parents: Sequence[Individual], human: Individual | None) -> Messages:
        if operator == INITIAL:
            return self.prompts.initial()
        if operator == REPAIR:
            return self.prompts.repair(parents[0])
        return self.prompts.crossover(parents, human)
