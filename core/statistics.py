"""Mean and interquartile mean (IQM) of agents, with intervals that cover.

The IQM (Agarwal et al. 2021, https://arxiv.org/abs/2108.13264) is less swayed by outliers than the mean and wastes less
data than the median. It hides failures of up to a quarter of the agents: count these beside it.

Intervals are those of order statistics (Learned-Miller and Thomas 2019, https://arxiv.org/abs/1905.06208; for the mean
it is Gaffke's bound of 2005). The distribution function at n sorted values is distributed as n sorted uniforms,
whatever the distribution. So between two sorted values lies a share w_i of all agents, w ~ Dirichlet(1, .., 1) of n + 1
parts. The lowest mean that fits has each part at its left end, the highest at its right end. The interval goes from the
2.5 % quantile of the one to the 97.5 % quantile of the other. Of the IQM the same, over the parts within the middle
half. The outermost ends are unseen: the worst and the best possible, or an extension of the outermost values by c times
their distance from the median. c is 10 / n for the mean (few agents have seen little of a tail), 1 / 2 for the IQM; of
fewer than five values 50 / n^2. Bounds are taken whole where half of the values are equal; else they limit the
extension.

Measured coverage of the nominal 95 % in 100, and the width over that of Student's t for normal data (3,000 samples
each; tests/core/test_coverage.py repeats it):

    mean                 n = 5        10        20        40
    normal             98 1.58   98 1.51   99 1.33   98 1.24
    exponential        94        98        97        97
    lognormal(0, 0.5)  97        98        98        97
    two modes          95        100       99        98
    at a ceiling       100       98        100       99         (200, 2 % failures at 10 to 60, bounds 0 and 200)
    IQM
    normal             96 1.11   99 1.39   99 1.27   97 1.22
    exponential        95        99        98        97
    lognormal(0, 0.5)  96        98        98        97
    two modes          95        98        97        96
    at a ceiling       100       100       100       100

Just below a ceiling they do not cover. Of values from 198 to 200, with 2 % failures at 10 to 60, most samples hold no
failure: the mean has 28, 20, 35 and 58.

Of two to four values: normal data 95 to 98, exponential 90 to 98, of two modes 61 to 87. Lognormal(0, 1), n = 5: mean
93, IQM 96. Percentile bootstrap: normal data 84, 90, 93, 93; at a ceiling 11, 19, 33, 55. Student's t: exponential data
87, 90, 91, 93. Five values of two modes may all be of one, 6 times in 100: no method without bounds covers more there.

A sample of equal values has no interval, unless bounds are known: say how many there are, and what share may differ
(:func:`unseen_share`).

A run that failed is a value that is not finite. It is never left out unnoticed: see ``failed`` in :func:`finite`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, List

import numpy as np
from numpy.typing import ArrayLike, NDArray

MEAN, IQM = "mean", "iqm"
_PART = {MEAN: (0.0, 1.0), IQM: (0.25, 0.75)}  # of the quantiles
_DRAWS, _LEAST_DRAWS, _CHUNK = 10_000, 1_000, 1_000_000  # shares drawn; numbers held at once: 8 MB
FEW = 5  # with fewer values there is next to nothing to know a spread from
_DIGITS = 12  # to which values are equal
_RESAMPLES = 2000  # of pairs


@dataclass
class AgentRuns:
    """Agents trained the same way, one entry per agent."""

    returns: List[float] = field(default_factory=list)  # mean test return on the real task; NaN where the agent failed
    steps: List[float] = field(default_factory=list)  # environment steps it trained for
    first_steps: List[float] = field(default_factory=list)  # until the first test of the window that solves; NaN: never


def finite(x: ArrayLike, failed: float | str = "raise") -> NDArray[np.float64]:
    """x as a float64 vector of finite values.

    failed: what a value that is not finite stands for. "raise": an error (ValueError); "drop": leave it out, knowingly;
    a number: count it as that number, e.g. the task's worst return.
    """
    values = np.asarray(x, dtype=np.float64).reshape(-1)
    bad = ~np.isfinite(values)
    if bad.any():
        if failed == "raise":
            raise ValueError(
                f"{bad.sum()} of {values.size} values are not finite: replace the scores of failed runs first"
            )
        values = values[~bad] if failed == "drop" else np.where(bad, float(failed), values)
    if values.size == 0:
        raise ValueError("no values to average")
    return values


def or_none(x: float) -> float | None:
    """A figure, or None where there is none: JSON has no NaN."""
    return float(x) if math.isfinite(x) else None


def interquartile_mean(x: ArrayLike, axis: int = -1) -> Any:
    """Mean of the middle half: floor(n / 4) values are cut off each end (as ``scipy.stats.trim_mean(x, 0.25)``).

    x: finite values [..., n]. Returns [...], a float for a vector. NaN if any value is.
    """
    values = np.moveaxis(np.asarray(x, dtype=np.float64), axis, -1)
    n = values.shape[-1]
    if n == 0:
        raise ValueError("no values to average")
    cut = n // 4
    if cut == 0:
        return values.mean(axis=-1)
    # partitioning sorts only as far as the two cuts need; NaN goes to the top end, so the largest value tells of it
    ordered = np.partition(values, [cut, n - cut - 1, n - 1], axis=-1)
    middle = ordered[..., cut : n - cut].mean(axis=-1)
    return np.where(np.isnan(ordered[..., -1]), np.nan, middle)[()]


# ------------------------------------------------------------------------------------------------------------ intervals


def interval(
    x: ArrayLike,
    statistic: str = MEAN,
    confidence: float = 0.95,
    failed: float | str = "raise",
    bounds: tuple[float, float] | None = None,
) -> tuple[float, float]:
    """(low, high) of the population's mean or IQM; always the same for the same values. NaN twice: these values alone
    tell nothing (there is one, or all are equal, and no bounds are known).

    x: values [n] (failed: see :func:`finite`); statistic: MEAN or IQM; bounds: the worst and the best possible value.
    """
    low, high = intervals(finite(x, failed)[:, None], statistic, confidence, bounds)
    return float(low[0]), float(high[0])


def intervals(
    x: NDArray[Any], statistic: str = MEAN, confidence: float = 0.95, bounds: tuple[float, float] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """:func:`interval` of every column. x: finite values [n, points] -> low, high [points]."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if statistic not in _PART:
        raise ValueError(f"statistic must be one of {', '.join(_PART)}, got {statistic!r}")
    values = np.sort(np.asarray(x, dtype=np.float64), axis=0).T  # [points, n]
    if bounds is not None and (bounds[0] > values.min() or bounds[1] < values.max()):
        raise ValueError(f"bounds must hold all values, got {bounds} and {values.min()} to {values.max()}")
    middle = np.median(values, axis=1, keepdims=True)
    least, most = _ends(values, statistic, bounds)
    # distances from the median, so that equal values stay exactly what they are
    lower, upper = np.column_stack([least, values]) - middle, np.column_stack([values, most]) - middle
    draws = [(lower @ w, upper @ w) for w in _shares(values.shape[1], statistic)]
    low = np.quantile(np.concatenate([a for a, _ in draws], 1), (1 - confidence) / 2, axis=1)
    high = np.quantile(np.concatenate([b for _, b in draws], 1), (1 + confidence) / 2, axis=1)
    low, high = low + middle[:, 0], high + middle[:, 0]
    if bounds is None:
        equal = _equal(values)
        low, high = np.where(equal, np.nan, low), np.where(equal, np.nan, high)
    return low, high


def _equal(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points have n equal values, to ``_DIGITS`` digits. values: sorted [points, n] -> [points]."""
    spread = values[:, -1] - values[:, 0]
    return spread <= 10.0**-_DIGITS * np.maximum(1.0, np.abs(values).max(axis=1))


def _ends(
    values: NDArray[np.float64], statistic: str, bounds: tuple[float, float] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Outermost possible positions of the unseen values below and above the sorted ones [points, n] -> [points]
    twice."""
    n = values.shape[1]
    least, most = values[:, 0], values[:, -1]
    middle = np.median(values, axis=1)
    c = 0.5 if statistic == IQM and n >= FEW else 10 / n * max(1.0, FEW / n)
    low, high = least - c * (middle - least), most + c * (most - middle)
    if bounds is None:
        return low, high
    # where half of the values are equal, as at a ceiling, distances tell nothing of what is unseen
    tied = (np.isclose(values, middle[:, None], rtol=1e-9, atol=1e-12).sum(axis=1) * 2 >= n) | (n == 1)
    low, high = np.where(tied, bounds[0], low), np.where(tied, bounds[1], high)
    return np.maximum(low, bounds[0]), np.minimum(high, bounds[1])


def _shares(n: int, statistic: str) -> Sequence[NDArray[np.float64]]:
    """Random draws of the share that each of the n + 1 parts has in the statistic: blocks [n + 1, draws]."""
    return _drawn_once(n, statistic) if n < _CHUNK // _LEAST_DRAWS else _drawn(n, statistic)


def _drawn(n: int, statistic: str) -> tuple[NDArray[np.float64], ...]:
    a, b = _PART[statistic]
    rng = np.random.default_rng(0)
    draws = max(_LEAST_DRAWS, min(_DRAWS, _CHUNK // (n + 1)))
    rows = max(1, min(draws, _CHUNK // (n + 1)))
    out = []
    for i in range(0, draws, rows):
        gaps = rng.exponential(size=(min(rows, draws - i), n + 1))
        ends = np.cumsum(gaps, axis=1)
        quantiles = np.clip(np.column_stack([np.zeros(len(ends)), ends / ends[:, -1:]]), a, b)
        out.append(np.ascontiguousarray(np.diff(quantiles, axis=1).T) / (b - a))
    return tuple(out)


_drawn_once = functools.lru_cache(maxsize=8)(_drawn)


def unseen_share(n: int, confidence: float = 0.95) -> float:
    """Upper bound of the share of agents that may differ although n of n were alike: 1 - 0.05^(1/n), about 3 / n
    (Clopper and Pearson 1934, https://doi.org/10.1093/biomet/26.4.404, one-sided)."""
    return 1 - (1 - confidence) ** (1 / n)


def within(low: float, high: float, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """The part of an interval that is possible. bounds: the worst and the best possible value; None: not known.

    Of few values the ends reach far beyond what was seen, of two CartPole agents to returns of 300. No mean lies out
    there, so that what is cut off never held the true one: the interval covers as often as before, and is shorter. NaN
    stays NaN.
    """
    if bounds is None or math.isnan(low):
        return low, high
    return min(max(low, bounds[0]), bounds[1]), max(min(high, bounds[1]), bounds[0])


def agents_interval(
    agent_scores: Sequence[float], episode_scores: Sequence[float], bounds: tuple[float, float] | None = None
) -> tuple[float, float] | None:
    """95 % interval of a mean score: over the agents if there are several (their spread includes that of the episodes),
    else over the episodes of the only one. None if all values are equal."""
    low, high = interval(agent_scores if len(agent_scores) > 1 else episode_scores, bounds=bounds)
    return None if math.isnan(low) else (low, high)


def of_worlds(x: Sequence[float], worlds: Sequence[str]) -> list[float]:
    """Means of each world's finite values if there are several worlds, else x itself. Agents of one world are alike, so
    intervals count worlds. worlds: the world of each value."""
    x = [float(v) for v in x]
    if len(worlds) != len(x) or len(set(worlds)) < 2:
        return x
    groups: dict[str, list[float]] = {}
    for value, world in zip(x, worlds):
        groups.setdefault(world, []).append(value)
    fine = [[v for v in values if math.isfinite(v)] for values in groups.values()]
    return [float(np.mean(values)) if values else math.nan for values in fine]


def summary(
    x: Sequence[float] | NDArray[Any],
    failed: float | str = "raise",
    confidence: float = 0.95,
    bounds: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Plain values, ready for JSON: mean, mean_interval, iqm, iqm_interval, median, n (used), failed (not finite),
    all_equal, and of equal values unseen_share.

    x: values [n]; failed: see :func:`finite`; intervals are [low, high], None where the values alone tell nothing.
    """
    values = finite(x, failed)
    alike = bool(_equal(np.sort(values)[None])[0])
    out: dict[str, Any] = {
        "mean": float(values.mean()),
        "mean_interval": _plain(interval(values, MEAN, confidence, bounds=bounds)),
        "iqm": float(interquartile_mean(values)),
        "iqm_interval": _plain(interval(values, IQM, confidence, bounds=bounds)),
        "median": float(np.median(values)),
        "n": int(values.size),
        "failed": int((~np.isfinite(np.asarray(x, dtype=np.float64))).sum()),
        "all_equal": alike,
    }
    return {**out, "unseen_share": unseen_share(values.size, confidence)} if alike else out


def _plain(pair: tuple[float, float]) -> list[float] | None:
    return None if math.isnan(pair[0]) else list(pair)


# --------------------------------------------------------------------------------------------------------- correlations


def ranks(x: ArrayLike) -> NDArray[np.float64]:
    """Ranks [n] of values [n], from 1; equal values share their mean rank."""
    _, which, counts = np.unique(np.asarray(x, np.float64), return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which])


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's correlation of pairs [n]; NaN where one of them does not vary."""
    a, b = (v - v.mean() for v in (np.asarray(x, np.float64), np.asarray(y, np.float64)))
    norm = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / norm) if norm > 0 else float("nan")


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's correlation of the ranks."""
    return pearson(ranks(x), ranks(y))


def kendall(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's tau-b: pairs in the same order minus pairs in another, over the square root of those not tied in x
    times those not tied in y."""
    i, j = np.triu_indices(len(np.asarray(x)), 1)
    a, b = (np.sign(np.asarray(v, np.float64)[i] - np.asarray(v, np.float64)[j]) for v in (x, y))
    norm = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / norm) if norm > 0 else float("nan")


def pairs_interval(statistic: Callable[..., float], x: NDArray[Any], y: NDArray[Any]) -> tuple[float, float]:
    """95 % percentile bootstrap of a correlation over the pairs [n]. A resample in which nothing varies says nothing
    and counts as 0."""
    draws = np.random.default_rng(0).integers(len(x), size=(_RESAMPLES, len(x)))
    low, high = np.quantile(np.nan_to_num([statistic(x[row], y[row]) for row in draws]), [0.025, 0.975])
    return float(low), float(high)
