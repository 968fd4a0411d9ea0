"""Searches over the numbers of a structure: NES, BOHB and random points. What a point is: ``llm/tune.py``."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from envolve.outer.config.section import GTNSection
from envolve.outer.loop.loop import AskTell, Target
from envolve.outer.search.nes import NES, PLUS, Population

RANDOM = 0x7264  # stream of random numbers
FACTOR = 3.0  # BOHB searches u in [-FACTOR, FACTOR]: a number may change its sign and grow fourfold


class Tuner(AskTell, Protocol):
    """A search that knows its best point. Members of BOHB's generations get shares of the full training. NES is told
    finite scores, the others NaN where a point failed."""

    @property
    def centre(self) -> Tensor:
        """Best point, float32 [D]."""


def nes_tuner(target: Target, population: int, sigma: float, step: float, seed: int) -> NES:
    """``envolve.outer.search.nes`` around the written numbers, mirrored, with rank-based steps and averaged
    iterates."""
    section = GTNSection(
        num_workers=max(1, (population - 1) // 2),
        num_orig_evals=1,
        noise_std=sigma,
        step_size=step,
        estimator="antithetic",
        mirrored_sampling=True,
        num_grad_evals=1,
        weight_decay=0.0,
        iterate_averaging=0.5,
    )
    return NES(section, seed, target.begin, target.mask())


class BOHBTuner:
    """Back end bohb of ``envolve.outer.hpo.search``: cheap trainings sort out, a model of good and bad points proposes;
    the written numbers are the first point."""

    def __init__(self, D: int, population: int, seed: int) -> None:
        import ConfigSpace  # an extra, as is all that bohb needs

        from envolve.outer.hpo.reading.sections import SearchSection
        from envolve.outer.hpo.search import make_search

        self.names = [f"u{i:06d}" for i in range(D)]  # ConfigSpace sorts by name
        space = ConfigSpace.ConfigurationSpace({name: (-FACTOR, FACTOR) for name in self.names})
        usual, budgets = SearchSection(), (1 / 9, 1.0, 3)
        self.search = make_search(
            "bohb", space, budgets, bracket=usual.bracket, seed=seed, random_fraction=usual.random_fraction
        )
        self.population, self.D, self.ids = population, D, [-1]
        self.found: list[tuple[float, float, np.ndarray]] = []  # budget, score, u
        self.asked: list[tuple[float, np.ndarray]] = []

    def ask(self) -> Population:
        trials = [self.search.ask() for _ in range(self.population - (not self.found))]
        self.ids = [trial.id for trial in trials]
        self.asked = [(trial.budget, np.array([trial.values[name] for name in self.names])) for trial in trials]
        if not self.found:
            self.ids, self.asked = [-1, *self.ids], [(1.0, np.zeros(self.D)), *self.asked]
        return points([u for _, u in self.asked], tuple(share for share, _ in self.asked))

    def tell(self, scores: np.ndarray) -> None:
        for i, (budget, u), score in zip(self.ids, self.asked, scores.tolist()):
            if i >= 0:
                self.search.tell(i, -score)
            if math.isfinite(score):
                self.found.append((budget, score, u))

    @property
    def centre(self) -> Tensor:
        """Best point among those with the most training."""
        most = max((b for b, _, _ in self.found), default=0.0)
        ranked = sorted((f for f in self.found if f[0] == most), key=lambda f: -f[1])
        return torch.tensor(ranked[0][2] if ranked else np.zeros(self.D), dtype=torch.float32)


class RandomTuner:
    """Points drawn evenly from [-FACTOR, FACTOR], the written numbers first: what a search has to beat."""

    def __init__(self, D: int, population: int, seed: int) -> None:
        self.rng, self.D, self.population = np.random.default_rng([seed, RANDOM]), D, population
        self.found: list[tuple[float, np.ndarray]] = []
        self.asked: list[np.ndarray] = []

    def ask(self) -> Population:
        self.asked = list(self.rng.uniform(-FACTOR, FACTOR, (self.population, self.D)))
        if not self.found:
            self.asked[0] = np.zeros(self.D)
        return points(self.asked)

    def tell(self, scores: np.ndarray) -> None:
        pairs = zip(scores.tolist(), self.asked)
        self.found += [(score if math.isfinite(score) else -math.inf, u) for score, u in pairs]

    @property
    def centre(self) -> Tensor:
        """The first of the best points."""
        best = max(self.found, key=lambda f: f[0], default=(0.0, np.zeros(self.D)))
        return torch.tensor(best[1], dtype=torch.float32)


def points(u: list[np.ndarray], shares: tuple[float, ...] = ()) -> Population:
    """Members at the points u, P of [D]. The seeds are the evaluator's: all points share their random numbers."""
    P = len(u)
    worlds = torch.tensor(np.stack(u), dtype=torch.float32)
    return Population(worlds, torch.zeros(P, dtype=torch.int64), [PLUS] * P, np.arange(P), shares)
