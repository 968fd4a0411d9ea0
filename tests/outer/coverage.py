"""How often intervals hold the population's value, on data of kinds whose mean and interquartile mean are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from envolve.core.statistics import IQM, MEAN, intervals

Sample = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
BOUNDS = {"ceiling": (0.0, 200.0)}  # where the data are known to be bounded


def bimodal(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return np.where(rng.random(size) < 0.5, 20.0, 190.0) + 8 * rng.normal(size=size)


def ceiling(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return np.where(rng.random(size) < 0.02, rng.uniform(10, 60, size), 200.0)


KINDS: dict[str, Sample] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "lognormal": lambda rng, size: rng.lognormal(0, 0.5, size=size),
    "bimodal": bimodal,
    "ceiling": ceiling,
}
# The IQM of the exponential distribution is 2 int_1/4^3/4 -ln(1 - u) du = 2 [v - v ln v]_1/4^3/4; that of the lognormal
# 2 e^(s^2 / 2) (F(q - s) - F(-q - s)), s = 1/2, with the normal F and its upper quartile q
_F, _Q = (lambda z: 0.5 * (1 + math.erf(z / math.sqrt(2)))), 0.6744897501960817
TRUE = {
    "normal": {MEAN: 0.0, IQM: 0.0},
    "exponential": {MEAN: 1.0, IQM: 2 * (0.5 - 0.75 * math.log(0.75) + 0.25 * math.log(0.25))},
    "lognormal": {MEAN: math.exp(0.125), IQM: 2 * math.exp(0.125) * (_F(_Q - 0.5) - _F(-_Q - 0.5))},
    "bimodal": {MEAN: 105.0, IQM: 105.0},
    "ceiling": {MEAN: 0.98 * 200 + 0.02 * 35, IQM: 200.0},
}


def coverage(kind: str, statistic: str, n: int, repetitions: int, seed: int = 0) -> tuple[float, float]:
    """Share of the intervals of n values that hold the population's, and their median width."""
    x = KINDS[kind](np.random.default_rng([seed, n]), (n, repetitions))
    low, high = intervals(x, statistic, bounds=BOUNDS.get(kind))
    true = TRUE[kind][statistic]
    return float(((low <= true) & (true <= high)).mean()), float(np.median(high - low))
