"""Evolution of starts and goals in its folder: generations, files, and resuming.

A generation trains all its members from scratch side by side, one population: num_orig_evals with the starts and goals
that the search stands at, those of the perturbations, and as many plain members as the first with the task's own and
the same seeds. A member's score is what its evaluations give, and those have the task's own starts and goals always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from envolve.outer.checkpoint import RunError
from envolve.outer.config.section import GTNSection
from envolve.outer.evaluate.goals import world_of
from envolve.outer.goals.evolve_sections import EvolveSection
from envolve.outer.goals.keeper import GoalKeeper, GoalRow
from envolve.outer.loop.loop import Evaluator, Generation, Hook, Loop
from envolve.outer.search.nes import NES, Population, fresh_seeds

PLAIN = "plain"  # role of members with the task's own starts and goals


class GoalTarget:
    """Parameters of the families, D of them. A world is (plain, u_1 .. u_D), see ``outer/evaluate/goals.py``."""

    def __init__(self, dimensions: int, plain: int) -> None:
        """plain: members with the task's own starts and goals in every generation."""
        self.dimensions, self.plain = dimensions, plain

    def begin(self, seed: int) -> Tensor:
        return torch.zeros(self.dimensions)

    def mask(self) -> Tensor:
        return torch.ones(self.dimensions)

    def members(self, population: Population) -> Population:
        """Adds the plain members, which have the seeds of the first ones."""
        n, P = self.plain, len(population.seeds)
        u = torch.cat((population.worlds, population.worlds[:n]))
        return replace(
            population,
            worlds=world_of(u, torch.arange(P + n) >= P),
            seeds=torch.cat((population.seeds, population.seeds[:n])),
            roles=population.roles + [PLAIN] * n,
            perturbation=np.concatenate((population.perturbation, np.full(n, -1))),
            recipe=None,  # of other worlds than these
        )


class GoalEvolution:
    """The search and its files."""

    def __init__(
        self,
        folder: Path,
        evolve: EvolveSection,
        seed: int,
        names: list[str],
        evaluate: Evaluator,
        after: Sequence[Hook] = (),
    ) -> None:
        """names: of the parameters, [D]. evaluate: as ``GoalMembers``. after: hooks that see a finished generation.
        Resumes from the folder, if it has a checkpoint. Raises RunError."""
        self.evolve, self.seed, self.names, self.evaluate = evolve, seed, names, evaluate
        section = GTNSection(
            num_workers=evolve.num_workers,
            noise_std=evolve.noise_std,
            step_size=evolve.step_size,
            num_orig_evals=evolve.num_orig_evals,
            estimator="antithetic",
            common_random_numbers=True,
        )
        target = GoalTarget(len(names), evolve.num_orig_evals)
        self.keeper = GoalKeeper(folder, names)
        self.nes = self.keeper.search = NES(section, seed, target.begin, target.mask(), self.keeper.state)
        self.loop = Loop(
            self.nes,
            target,
            evaluate,
            self.keeper,
            evolve.generations,
            done=len(self.history),
            before=[refuse_if_all_diverged],
            after=after,
        )

    @property
    def history(self) -> list[GoalRow]:
        return self.keeper.history

    @property
    def comparison(self) -> tuple[list[float], list[float]]:
        """Scores of fresh agents with the evolved starts and goals, and of plain ones; empty before ``compare``."""
        return self.keeper.comparison

    @property
    def u(self) -> Tensor:
        """Current search point, [D]."""
        return self.nes.state.psi

    def run(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """All generations that are left, and the comparison -> False if ``stop`` ended it before."""
        if not self.loop.run(stop) or stop():
            return False
        if not self.comparison[0]:
            self.compare()
        return True

    def compare(self) -> None:
        """Trains fresh agents with new random seeds, at the end of the search and plain."""
        n = self.evolve.comparison_agents
        seeds = fresh_seeds(self.seed, 0, n).repeat(2)
        worlds = world_of(self.u.repeat(2 * n, 1), torch.arange(2 * n) >= n)
        members = Population(worlds, seeds, ["evolved"] * n + [PLAIN] * n, np.full(2 * n, -1))
        scores = self.evaluate(self.loop.done + 1, members).scores
        self.keeper.compared(scores[:n].tolist(), scores[n:].tolist())


def refuse_if_all_diverged(g: Generation) -> None:
    """Raises RunError: nothing can be learned from such a generation."""
    if g.failed.all():
        raise RunError("every member has diverged: their weights are not finite; lower learning rates")
