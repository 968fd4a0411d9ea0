"""Fitness of candidates: agents trained on them, all in one simulator, and tested by the task's true score.

Every candidate's k-th agent has the same random numbers, so differences come from the candidates. Selection, tuning and
the final test use different random numbers, so that selection does not bias the test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from envolve.agents.shaped.halving import AgentRun, Halved, Training, train_halving
from envolve.agents.shaped.training import Metrics
from envolve.core.cleaning import printable
from envolve.core.statistics import agents_interval
from envolve.envs.shaping.candidate import Candidate
from envolve.llm.search.individual import HUMAN, Individual, curves_of
from envolve.outer.search.nes import MEMBERS, RETEST, member_seeds

# purpose and counter of the random numbers (outer/search/nes.py)
SELECT, FINAL, FRESH = (MEMBERS, 0), (RETEST, 0), (RETEST, 1)
Report = Callable[[Metrics, list[int]], None]


@dataclass
class Worth:
    """Results of a candidate's K agents."""

    runs: list[AgentRun]  # [K]
    judged: bool  # by evaluation episodes; not: it lost before the last rung

    @property
    def failure(self) -> str | None:
        failed = [run.failure for run in self.runs if run.failure is not None]
        return None if not failed else printable(f"{failed[0]}\n{failed[0].traceback}".strip())

    @property
    def agent_scores(self) -> list[float]:
        return [run.score for run in self.runs]

    @property
    def score(self) -> float:
        """Mean score; NaN if any agent failed, because the mean of the others would be too good."""
        return math.nan if self.failure is not None else float(np.mean(self.agent_scores))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of the score, see ``agents_interval``; None without a score, or for a score of the training."""
        if not math.isfinite(self.score) or not self.judged:
            return None
        return agents_interval(self.agent_scores, self.runs[0].episode_scores)

    @property
    def steps(self) -> int:
        return sum(run.spent for run in self.runs)

    @property
    def curves(self) -> dict[str, list[float]]:
        """Means over agents."""

        def mean(curves: Sequence[Sequence[float]]) -> list[float]:
            return [float(np.mean(values)) for values in zip(*curves)]

        first = self.runs[0]
        components = {
            name: mean([run.components[name] for run in self.runs if name in run.components])
            for name in first.components
        }
        return curves_of(
            mean([r.score_curve for r in self.runs]), mean([r.reward_curve for r in self.runs]), components
        )


def judge(
    training: Training,
    candidates: Sequence[Candidate],
    seed: int,
    numbers: tuple[int, int],
    stays: Sequence[int] = (),
    report: Report | None = None,
) -> tuple[list[Worth], Halved]:
    """Trains K agents per candidate. numbers: purpose and counter of the random numbers; stays: candidates that halving
    never drops. Raises ValueError, SimulatorError."""
    K = training.agents
    keys = member_seeds(seed, *numbers, 2 * K)
    halved = train_halving(training, candidates, keys[:K], keys[K:], stays, report)
    worths = []
    for c in range(len(candidates)):
        runs = halved.runs[c * K : (c + 1) * K]
        worths.append(Worth(runs, all(run.episode_scores for run in runs)))
    return _losers_below(worths, stays), halved


def _losers_below(worths: list[Worth], stays: Sequence[int]) -> list[Worth]:
    """Scores of eliminated candidates: their score in training, capped at the worst survivor's test score, since the
    two are not comparable."""
    judged = [w.score for c, w in enumerate(worths) if w.judged and math.isfinite(w.score) and c not in stays]
    for worth in worths:
        if judged and not worth.judged and worth.score > min(judged):
            worth.runs = [replace(run, score=min(run.score, min(judged))) for run in worth.runs]
    return worths


def candidate_of(individual: Individual) -> Candidate:
    """Candidate from an individual's graphs with its tuned parameters; the human's replaces nothing."""
    name = f"i{individual.id:03d}" if individual.operator != HUMAN else HUMAN
    if individual.graph_file is None:
        return Candidate(name)
    return individual.graph_file.candidate(name)


def evaluate(training: Training, individuals: Sequence[Individual], seed: int, report: Report | None = None) -> None:
    """Trains and tests; writes the results into the individuals. The human's shapers are never eliminated."""
    stays = [c for c, i in enumerate(individuals) if i.operator == HUMAN]
    worths, _ = judge(training, [candidate_of(i) for i in individuals], seed, SELECT, stays, report)
    for individual, worth in zip(individuals, worths):
        individual.failure, individual.score, individual.interval = worth.failure, worth.score, worth.interval
        individual.agent_scores, individual.curves = worth.agent_scores, worth.curves
        individual.steps += worth.steps
