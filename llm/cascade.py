"""A short training first, the full one only for candidates that are worth it.

A candidate goes on if the lower bound of its short score's 95 % interval reaches the median of all short scores so far,
its own batch included; the best of a batch always does. One that does not keeps its short score, capped at the worst
full one of its batch, since the two are not comparable. Short trainings use the random numbers of full ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from envolve.agents.shaped.halving import Training
from envolve.llm.fitness import Report, evaluate
from envolve.llm.search.individual import HUMAN, Individual

NOTE = (
    "only the short training of the cascade, where the lower bound {low:.4g} of its score {score:.4g} did not reach "
    "the median {median:.4g}"
)


def shorter(training: Training, share: float) -> Training:
    """Same training with this share of the iterations, at least one."""
    return replace(training, iterations=max(1, round(share * training.iterations)), eta=1)


def go_on(new: Sequence[Individual], earlier: Sequence[float]) -> tuple[list[Individual], float]:
    """Those of ``new``, whose short training is over, that get the full one; and the median. earlier: short scores."""
    known = [i for i in new if i.ok]
    if not known:
        return [], math.nan
    median = float(np.median([*earlier, *(i.score for i in known)]))
    best = max(known, key=lambda i: (i.score, -i.id))
    return [i for i in known if i is best or (i.interval[0] if i.interval else i.score) >= median], median


def evaluate_in_two(
    training: Training,
    new: Sequence[Individual],
    seed: int,
    share: float,
    earlier: Sequence[float],
    report: Report | None = None,
) -> None:
    """Evaluates them, the human's reference among them in full. Steps of both trainings are counted, ``short`` of each
    candidate is its short score."""
    reference = [i for i in new if i.operator == HUMAN]
    candidates = [i for i in new if i.operator != HUMAN]
    if candidates:
        evaluate(shorter(training, share), candidates, seed, report)
    for i in candidates:
        i.short = i.score
    chosen, median = go_on(candidates, earlier)
    if chosen or reference:
        evaluate(training, [*chosen, *reference], seed, report)
    worst = min((i.score for i in chosen if i.ok), default=math.inf)
    for i in candidates:
        if i not in chosen and i.ok:
            low = i.interval[0] if i.interval else i.score
            i.notes = (*i.notes, NOTE.format(low=low, score=i.score, median=median))
            i.score, i.interval = min(i.score, worst), None
