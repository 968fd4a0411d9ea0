"""Interquartile mean and bootstrap intervals, the figures in which agents are compared.

After Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice"
(https://arxiv.org/abs/2108.13264): the interquartile mean (IQM) is less swayed by outliers than the mean and wastes
less data than the median; the interval is the percentile bootstrap.

A run that failed is a value that is not finite. It is never left out unnoticed: see ``failed`` in :func:`finite`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_CHUNK = 4_000_000  # resampled values held at once: 32 MB


@dataclass
class AgentRuns:
    """Agents trained the same way, one entry per agent."""

    returns: list[float] = field(default_factory=list)  # mean test return on the real task; NaN where the agent failed
    steps: list[float] = field(default_factory=list)  # environment steps it trained for


def finite(x: ArrayLike, failed: float | str = "raise") -> NDArray[np.float64]:
    """x as a float64 vector of finite values.

    failed: what a value that is not finite stands for. "raise": an error (ValueError); "drop": leave it out, knowingly;
    a number: count it as that number, e.g. the task's worst return.
    """
    values = np.asarray(x, dtype=np.float64).reshape(-1)
    bad = ~np.isfinite(values)
    if bad.any():
        if failed == "raise":
            raise ValueError(f"{bad.sum()} of {values.size} values are not finite: say what a failed run counts as")
        values = values[~bad] if failed == "drop" else np.where(bad, float(failed), values)
    if values.size == 0:
        raise ValueError("no values to average")
    return values


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


def bootstrap_interval(
    x: ArrayLike,
    statistic: Callable[..., Any] = np.mean,
    confidence: float = 0.95,
    samples: int = 10_000,
    seed: int = 0,
    failed: float | str = "raise",
) -> tuple[float, float]:
    """Percentile bootstrap interval (low, high) of ``statistic``; the same seed gives the same interval.

    x: values [n] (failed: see :func:`finite`). statistic: called with resamples [S, n] and ``axis=-1``, returns [S].
    One value alone gives an interval of no width: nothing is known of its spread.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    values = finite(x, failed)
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // values.size)
    draws = [
        np.asarray(statistic(values[rng.integers(values.size, size=(min(rows, samples - i), values.size))], axis=-1))
        for i in range(0, samples, rows)
    ]
    low, high = np.quantile(np.concatenate(draws), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def agents_interval(agent_scores: Sequence[float], episode_scores: Sequence[float]) -> tuple[float, float]:
    """95 % bootstrap of a mean score: over the agents if there are several, for their spread holds the episodes', else
    over the episodes of the one."""
    return bootstrap_interval(agent_scores if len(agent_scores) > 1 else episode_scores)


def summary(
    x: Sequence[float] | NDArray[Any], failed: float | str = "raise", confidence: float = 0.95, seed: int = 0
) -> dict[str, Any]:
    """Plain values, ready for JSON: mean, mean_interval, iqm, iqm_interval, median, n (used), failed (not finite).

    x: values [n]; failed: see :func:`finite`; intervals are [low, high].
    """
    values = finite(x, failed)
    return {
        "mean": float(values.mean()),
        "mean_interval": list(bootstrap_interval(values, np.mean, confidence, seed=seed)),
        "iqm": float(interquartile_mean(values)),
        "iqm_interval": list(bootstrap_interval(values, interquartile_mean, confidence, seed=seed)),
        "median": float(np.median(values)),
        "n": int(values.size),
        "failed": int((~np.isfinite(np.asarray(x, dtype=np.float64))).sum()),
    }
