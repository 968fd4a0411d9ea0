"""Standings of a study: trials per budget, the best, and the correlation between budgets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envolve.core.statistics import spearman
from envolve.outer.hpo.trial import ConfigID, Record


@dataclass(frozen=True)
class Rung:
    """Statistics of all trials at one budget. best, median: losses of the successful trials; NaN if all failed."""

    budget: float
    trials: int
    failed: int
    best: float
    median: float


def succeeded(record: Record) -> bool:
    return math.isfinite(record.result.loss)


def rungs(records: Sequence[Record]) -> list[Rung]:
    """Statistics by budget, the smallest first."""
    out = []
    for budget in sorted({r.trial.budget for r in records}):
        here = [r for r in records if r.trial.budget == budget]
        losses = [r.result.loss for r in here if succeeded(r)]
        best, median = (min(losses), float(np.median(losses))) if losses else (math.nan, math.nan)
        out.append(Rung(budget, len(here), len(here) - len(losses), best, median))
    return out


def ranked(records: Sequence[Record]) -> list[Record]:
    """Trials at the largest budget with a success, best first: losses of different budgets are not comparable."""
    good = [r for r in records if succeeded(r)]
    top = max((r.trial.budget for r in good), default=math.nan)
    return sorted((r for r in good if r.trial.budget == top), key=lambda r: (r.result.loss, r.trial.id))


def last_of_each(records: Sequence[Record]) -> list[Record]:
    """Trial of every configuration at its largest budget, in the order of the trials."""
    last: dict[ConfigID, Record] = {}
    for r in records:
        if r.trial.config_id not in last or r.trial.budget > last[r.trial.config_id].trial.budget:
            last[r.trial.config_id] = r
    return sorted(last.values(), key=lambda r: r.trial.id)


@dataclass(frozen=True)
class Agreement:
    """Correlation between two budgets. rho: Spearman's rank correlation over the configurations that succeeded at both;
    NaN if fewer than ``LEAST`` did, or all losses of one budget are equal."""

    low: float
    high: float
    configurations: int
    rho: float

    LEAST = 3


def agreements(records: Sequence[Record]) -> list[Agreement]:
    """Correlations of neighbouring budgets. Only promoted configurations have both, and these are alike: a low value
    among a few of them means little."""
    loss = {(r.trial.config_id, r.trial.budget): r.result.loss for r in records if succeeded(r)}
    budgets = sorted({r.trial.budget for r in records})
    out = []
    for low, high in zip(budgets, budgets[1:]):
        both = [(loss[c, low], x) for (c, b), x in loss.items() if b == high and (c, low) in loss]
        rho = spearman(*zip(*both)) if len(both) >= Agreement.LEAST else math.nan
        out.append(Agreement(low, high, len(both), rho))
    return out
