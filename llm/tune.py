"""Tuning of the constants in a structure that a model wrote: NES or BOHB, the whole population in one simulator.

A point is u [D]: how far each lifted number is from the written one, in units of its scale
(``outer/evaluate/shapers.py``), so that u = 0 is the code as the model wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from envolve.agents.shaped.halving import Training
from envolve.envs.shaping.candidate import Candidate
from envolve.llm import json_lines
from envolve.llm.fitness import judge
from envolve.llm.tune_workers import Workers
from envolve.outer.config.section import GTNSection
from envolve.outer.evaluate.shapers import params_of
from envolve.outer.search.nes import MEMBERS, NES, member_seeds

RANDOM = 0x7264  # stream of random numbers
FACTOR = 3.0  # BOHB searches u in [-FACTOR, FACTOR]: a number may change its sign and grow fourfold


@dataclass(frozen=True)
class TuneSettings:
    """Options of the tuning."""

    method: str = "nes"  # or "bohb", or "random"
    generations: int = 10
    population: int = 16  # candidates per generation
    sigma: float = 0.3  # NES: standard deviation of u
    step: float = 0.15  # NES: Adam's learning rate, in the same unit
    workers: int = 0  # worker processes, through the exchange; 0: this process, a generation in one simulator


@dataclass(frozen=True)
class Tuned:
    """Result of a tuning."""

    params: Tensor  # float32 [D]
    score: float  # as the search saw it; the final test is another
    steps: int  # environment steps that it took
    history: list[tuple[int, float, float]]  # per generation: environment steps so far, mean score, best score


class Tuner(Protocol):
    def ask(self) -> tuple[Tensor, list[float]]:
        """Points u float32 [P, D], and the share of the full training that each is worth."""

    def tell(self, scores: np.ndarray) -> None:
        """Scores float64 [P], in the order of ``ask``; NaN: failed."""

    def best(self) -> Tensor:
        """Best point, [D]."""


class NESTuner:
    """``envolve.outer.search.nes`` around the written numbers, mirrored, with rank-based steps and averaged
    iterates."""

    def __init__(self, D: int, s: TuneSettings, seed: int) -> None:
        pairs = max(1, (s.population - 1) // 2)
        section = GTNSection(
            num_workers=pairs, num_orig_evals=1, noise_std=s.sigma, step_size=s.step, estimator="antithetic",
            mirrored_sampling=True, num_grad_evals=1, weight_decay=0.0, iterate_averaging=0.5,
        )  # fmt: skip
        self.nes = NES(section, seed, lambda _: torch.zeros(D), torch.ones(D))

    def ask(self) -> tuple[Tensor, list[float]]:
        worlds = self.nes.ask().worlds
        return worlds, [1.0] * len(worlds)

    def tell(self, scores: np.ndarray) -> None:
        finite = scores[np.isfinite(scores)]
        if finite.size:  # a generation in which everything failed moves nothing
            self.nes.tell(np.where(np.isfinite(scores), scores, finite.min()))

    def best(self) -> Tensor:
        return self.nes.state.average


class BOHBTuner:
    """Back end bohb of ``envolve.outer.hpo.search``: cheap trainings sort out, a model of good and bad points proposes;
    the written numbers are the first point."""

    def __init__(self, D: int, s: TuneSettings, seed: int) -> None:
        import ConfigSpace  # an extra, as is all that bohb needs

        from envolve.outer.hpo.search import make_search

        self.names = [f"u{i:06d}" for i in range(D)]  # ConfigSpace sorts by name
        space = ConfigSpace.ConfigurationSpace({name: (-FACTOR, FACTOR) for name in self.names})
        self.search = make_search("bohb", space, (1 / 9, 1.0, 3), seed=seed)
        self.population, self.D, self.ids = s.population, D, [-1]
        self.found: list[tuple[float, float, np.ndarray]] = []  # budget, score, u
        self.asked: list[tuple[float, np.ndarray]] = []

    def ask(self) -> tuple[Tensor, list[float]]:
        trials = [self.search.ask() for _ in range(self.population - (not self.found))]
        self.ids = [trial.id for trial in trials]
        self.asked = [(trial.budget, np.array([trial.values[name] for name in self.names])) for trial in trials]
        if not self.found:
            self.ids, self.asked = [-1, *self.ids], [(1.0, np.zeros(self.D)), *self.asked]
        return torch.tensor(np.stack([u for _, u in self.asked]), dtype=torch.float32), [b for b, _ in self.asked]

    def tell(self, scores: np.ndarray) -> None:
        for i, (budget, u), score in zip(self.ids, self.asked, scores.tolist()):
            if i >= 0:
                self.search.tell(i, -score)
            if math.isfinite(score):
                self.found.append((budget, score, u))

    def best(self) -> Tensor:
        """Best point among those with the most training."""
        most = max((b for b, _, _ in self.found), default=0.0)
        ranked = sorted((f for f in self.found if f[0] == most), key=lambda f: -f[1])
        return torch.tensor(ranked[0][2] if ranked else np.zeros(self.D), dtype=torch.float32)


class RandomTuner:
    """Points drawn evenly from [-FACTOR, FACTOR], the written numbers first: what a search has to beat."""

    def __init__(self, D: int, s: TuneSettings, seed: int) -> None:
        self.rng, self.D, self.population = np.random.default_rng([seed, RANDOM]), D, s.population
        self.found: list[tuple[float, np.ndarray]] = []
        self.asked: list[np.ndarray] = []

    def ask(self) -> tuple[Tensor, list[float]]:
        self.asked = list(self.rng.uniform(-FACTOR, FACTOR, (self.population, self.D)))
        if not self.found:
            self.asked[0] = np.zeros(self.D)
        return torch.tensor(np.stack(self.asked), dtype=torch.float32), [1.0] * self.population

    def tell(self, scores: np.ndarray) -> None:
        pairs = zip(scores.tolist(), self.asked)
        self.found += [(score if math.isfinite(score) else -math.inf, u) for score, u in pairs]

    def best(self) -> Tensor:
        """The first of the best points."""
        best = max(self.found, key=lambda f: f[0], default=(0.0, np.zeros(self.D)))
        return torch.tensor(best[1], dtype=torch.float32)


def make_tuner(D: int, s: TuneSettings, seed: int) -> Tuner:
    kinds: dict[str, type[BOHBTuner] | type[RandomTuner] | type[NESTuner]] = {"bohb": BOHBTuner, "random": RandomTuner}
    return kinds.get(s.method, NESTuner)(D, s, seed)


def tune(
    training: Training, candidate: Candidate, s: TuneSettings, seed: int, number: int,
    log: Path, report: Callable[[int, float, float], None] | None = None, workers: Workers | None = None,
) -> Tuned:  # fmt: skip
    """Move the numbers of a candidate, of which it has at least one.

    number: of this tuning in its run, for random numbers of its own; log: JSON lines, the scores of every generation,
    from which an interrupted tuning goes on; report: called after every generation: its number, mean and best score;
    workers: back end of the trainings, default: this process, a generation in one simulator.
    """
    assert candidate.params is not None
    tuner = make_tuner(len(candidate.params), s, seed)
    known = read_generations(log)
    steps, history, best = 0, [], math.nan
    for generation in range(s.generations):
        points, shares = tuner.ask()
        if generation < len(known):
            scores, spent = known[generation]
        else:
            counter = (number + 1) << 20 | generation
            scores, spent = _generation(training, candidate, points, shares, seed, counter, workers)
            json_lines.append(log, {"scores": [None if math.isnan(x) else x for x in scores.tolist()], "steps": spent})
        steps += spent
        tuner.tell(scores)
        finite = scores[np.isfinite(scores)]
        mean, best = (float(finite.mean()), float(finite.max())) if finite.size else (math.nan, math.nan)
        history.append((steps, mean, best))
        if report is not None:
            report(generation + 1, mean, best)
    return Tuned(params_of(candidate, tuner.best()), history[-1][1] if history else math.nan, steps, history)


def _generation(
    training: Training, candidate: Candidate, points: Tensor, shares: list[float], seed: int, counter: int,
    workers: Workers | None,
) -> tuple[np.ndarray, int]:  # fmt: skip
    """Scores of the points, float64 [P], and the environment steps that they took. counter: of the random numbers that
    all points share."""
    scores, spent = np.full(len(points), np.nan), 0
    for share in sorted(set(shares)):  # one simulator for all that are trained as long
        rows = [i for i, own in enumerate(shares) if own == share]
        iterations = max(1, round(share * training.iterations))
        if workers is not None:
            keys = member_seeds(seed, MEMBERS, counter, training.agents).tolist()
            scores[rows], steps = workers.score(points[rows], iterations, keys)
            spent += steps
            continue
        members = [candidate.with_params(params_of(candidate, points[i])) for i in rows]
        short = replace(training, iterations=iterations, eta=1)
        worths, _ = judge(short, members, seed, (MEMBERS, counter))
        scores[rows] = [worth.score for worth in worths]
        spent += sum(worth.steps for worth in worths)
    return scores, spent


def read_generations(log: Path) -> list[tuple[np.ndarray, int]]:
    """Scores and environment steps of the generations in a log. Raises JSONLinesError."""
    rows = [row for _, row in json_lines.read(log)]
    return [(np.array([math.nan if x is None else x for x in row["scores"]]), int(row["steps"])) for row in rows]
