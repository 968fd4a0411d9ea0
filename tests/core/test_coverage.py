"""Intervals of nominal 95 % hold the population's value at least 93 times in 100, measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from envolve.core.statistics import IQM, MEAN, interquartile_mean
from tests.outer.coverage import KINDS, TRUE, coverage


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statistic", [MEAN, IQM])
def test_intervals_cover(kind: str, statistic: str) -> None:
    """400 repetitions at n = 10: one standard deviation is 1.2 points. The percentile bootstrap has 19 in 100 of the
    means at a ceiling."""
    assert coverage(kind, statistic, 10, 400)[0] >= 0.93


def test_intervals_are_no_wider_than_they_must_be() -> None:
    """A bound without limits would cover, too. Student's t has 2 * 2.262 / sqrt(10) = 1.39 of ten normal values."""
    assert coverage("normal", MEAN, 10, 400)[1] < 1.6 * 1.39
    assert coverage("normal", MEAN, 40, 400)[1] < 1.35 * 0.64


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statistic", [MEAN, IQM])
@pytest.mark.parametrize("n", [5, 10, 20, 40])
def test_intervals_cover_in_full(kind: str, statistic: str, n: int) -> None:
    found, width = coverage(kind, statistic, n, 3000, seed=1)
    print(f"{kind} {statistic} n {n}: {100 * found:.1f} % in {width:.3g}")
    assert found >= 0.93 and math.isfinite(width)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bimodal"])
def test_the_true_values_are_true(kind: str) -> None:
    """bimodal: the IQM of a sample jumps between the modes; its 105 is that of a symmetric distribution."""
    x = KINDS[kind](np.random.default_rng(5), (1000, 4000))
    assert x.mean() == pytest.approx(TRUE[kind][MEAN], abs=0.01 * max(1, x.std()))
    assert interquartile_mean(x.ravel()) == pytest.approx(TRUE[kind][IQM], abs=0.005)
