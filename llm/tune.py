"""Tuning of the constants in a structure that a model wrote: NES or BOHB, the whole population in one simulator.

A point is u [D]: how far each lifted number is from the written one, in units of its scale
(``outer/evaluate/shapers.py``), so that u = 0 is the code as the model wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from envolve.agents.shaped.halving import Training
from envolve.envs.shaping.candidate import Candidate
from envolve.llm import json_lines
from envolve.llm.fitness import judge
from envolve.llm.tune_workers import Workers
from envolve.llm.tuners import BOHBTuner, RandomTuner, Tuner, nes_tuner
from envolve.outer.evaluate.shapers import params_of
from envolve.outer.loop.loop import Evaluated, Generation, Loop
from envolve.outer.search.nes import MEMBERS, NES, Population, member_seeds


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
    score: float  # mean of the last generation's candidates, and no test of ``params``
    steps: int  # environment steps that it took
    history: list[tuple[int, float, float]]  # per generation: environment steps so far, mean score, best score


def make_tuner(target: NumbersTarget, s: TuneSettings, seed: int) -> Tuner:
    if s.method == "bohb":
        return BOHBTuner(target.dimensions, s.population, seed)
    if s.method == "random":
        return RandomTuner(target.dimensions, s.population, seed)
    return nes_tuner(target, s.population, s.sigma, s.step, seed)


class NumbersTarget:
    """Numbers of one candidate, D of them. A member's world is its point u."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    def begin(self, seed: int) -> Tensor:
        return torch.zeros(self.dimensions)

    def mask(self) -> Tensor:
        return torch.ones(self.dimensions)

    def members(self, population: Population) -> Population:
        return population


@dataclass(frozen=True)
class Points:
    """The evaluator: agents trained on a candidate with the numbers of each point."""

    training: Training
    candidate: Candidate
    seed: int
    number: int  # of this tuning in its run, for random numbers of its own
    workers: Workers | None  # None: this process, a generation in one simulator

    def __call__(self, number: int, members: Population) -> Evaluated:
        points, counter = members.worlds, (self.number + 1) << 20 | (number - 1)
        shares = members.shares or (1.0,) * len(points)
        scores, spent = np.full(len(points), np.nan), 0
        for share in sorted(set(shares)):  # one simulator for all that are trained as long
            rows = [i for i, own in enumerate(shares) if own == share]
            iterations = max(1, round(share * self.training.iterations))
            scores[rows], steps = self._train(points[rows], iterations, counter)
            spent += steps
        return Evaluated(scores, spent)

    def _train(self, points: Tensor, iterations: int, counter: int) -> tuple[np.ndarray | list[float], int]:
        """Scores [p] and environment steps. counter: of the random numbers that all points share."""
        if self.workers is not None:
            keys = member_seeds(self.seed, MEMBERS, counter, self.training.agents).tolist()
            return self.workers.score(points, iterations, keys)
        candidates = [self.candidate.with_params(params_of(self.candidate, point)) for point in points]
        short = replace(self.training, iterations=iterations, eta=1)
        worths, _ = judge(short, candidates, self.seed, (MEMBERS, counter))
        return [worth.score for worth in worths], sum(worth.steps for worth in worths)


class TuneLog:
    """The keeper: JSON lines, the scores of every generation. A search is told them again, from its beginning."""

    def __init__(self, path: Path) -> None:
        """Raises JSONLinesError."""
        self.path, self.stored = path, read_generations(path)

    def known(self, number: int) -> Evaluated | None:
        return Evaluated(*self.stored[number - 1]) if number <= len(self.stored) else None

    def evaluated(self, g: Generation) -> None:
        if g.number > len(self.stored):
            scores = [None if math.isnan(x) else x for x in g.found.scores.tolist()]
            json_lines.append(self.path, {"scores": scores, "steps": g.found.steps})

    def told(self, g: Generation) -> None:
        """Nothing more: the scores are the whole state."""


def tune(
    training: Training,
    candidate: Candidate,
    s: TuneSettings,
    seed: int,
    number: int,
    log: Path,
    report: Callable[[int, float, float], None] | None = None,
    workers: Workers | None = None,
) -> Tuned:
    """Move the numbers of a candidate, of which it has at least one.

    number: of this tuning in its run, for random numbers of its own; log: JSON lines, the scores of every generation,
    from which an interrupted tuning goes on; report: called after every generation: its number, mean and best score;
    workers: back end of the trainings, default: this process, a generation in one simulator.
    """
    assert candidate.params is not None
    history: list[tuple[int, float, float]] = []
    target = NumbersTarget(len(candidate.params))
    search = make_tuner(target, s, seed)
    by_rank = isinstance(search, NES)  # BOHB and random points have a use for failures

    def moves_nothing(g: Generation) -> None:
        if by_rank and g.failed.all():
            g.instead = lambda: None  # so the search asks again around the same point

    def record(g: Generation) -> None:
        finite = g.found.scores[np.isfinite(g.found.scores)]
        mean, best = (float(finite.mean()), float(finite.max())) if finite.size else (math.nan, math.nan)
        history.append((g.found.steps + (history[-1][0] if history else 0), mean, best))
        if report is not None:
            report(g.number, mean, best)

    evaluate = Points(training, candidate, seed, number, workers)
    Loop(
        search,
        target,
        evaluate,
        TuneLog(log),
        s.generations,
        before=[moves_nothing],
        after=[record],
        tells_failures=not by_rank,
    ).run()
    mean, steps = (history[-1][1], history[-1][0]) if history else (math.nan, 0)
    return Tuned(params_of(candidate, search.centre), mean, steps, history)


def read_generations(log: Path) -> list[tuple[np.ndarray, int]]:
    """Scores and environment steps of the generations in a log. Raises JSONLinesError."""
    out = []
    for number, row in json_lines.read(log):
        scores, steps = row.get("scores"), row.get("steps")
        if (
            not isinstance(scores, list)
            or not all(x is None or type(x) in (int, float) for x in scores)
            or type(steps) is not int
            or steps < 0
        ):
            raise json_lines.JSONLinesError(
                f'{log}, line {number}: found {row!r:.60}, expected {{"scores": [numbers], "steps": number}}'
            )
        out.append((np.array([math.nan if x is None else x for x in scores], dtype=np.float64), steps))
    return out
