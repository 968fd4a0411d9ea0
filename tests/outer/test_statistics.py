"""Interquartile mean and bootstrap intervals, against hand-computed values."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outer.statistics import bootstrap_interval, finite, interquartile_mean, summary

FINITE = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    "values, expected",
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 6.0], 3.0),  # fewer than four: nothing is cut
        ([100.0, 2.0, 4.0, -50.0], 3.0),  # one cut off each end
        ([8, 1, 2, 7, 3, 6, 4, 5], 4.5),  # 3, 4, 5, 6
        ([5, 4, 1000, 1, 3, 2, 0], 3.0),  # floor(7 / 4) = 1: 1, 2, 3, 4, 5
        ([0, 1, 1, 2, 3, 5, 8, 13, 21, 34], 16 / 3),  # floor(10 / 4) = 2: 1, 2, 3, 5, 8, 13; scipy.stats.trim_mean
    ],
)
def test_interquartile_mean_of_known_values(values: list[float], expected: float) -> None:
    assert interquartile_mean(values) == pytest.approx(expected, abs=1e-12)


def test_interquartile_mean_takes_an_axis() -> None:
    x = np.array([[100.0, 2.0, 4.0, -50.0], [0.0, 1.0, 2.0, 3.0]])
    np.testing.assert_allclose(interquartile_mean(x), [3.0, 1.5])
    np.testing.assert_allclose(interquartile_mean(x.T, axis=0), [3.0, 1.5])


def test_interquartile_mean_does_not_hide_nan() -> None:
    assert math.isnan(interquartile_mean([1.0, 2.0, 3.0, 4.0, float("nan")]))
    with pytest.raises(ValueError, match="no values"):
        interquartile_mean([])


@given(st.lists(FINITE, min_size=1, max_size=50))
def test_interquartile_mean_equals_a_sort_and_a_slice(values: list[float]) -> None:
    ordered, cut = sorted(values), len(values) // 4
    assert interquartile_mean(values) == pytest.approx(
        math.fsum(ordered[cut : len(ordered) - cut]) / (len(ordered) - 2 * cut), rel=1e-9, abs=1e-6
    )


def test_failed_runs_are_an_argument() -> None:
    x = [1.0, float("nan"), 3.0, float("inf")]
    with pytest.raises(ValueError, match="2 of 4 values are not finite"):
        finite(x)
    assert finite(x, failed="drop").tolist() == [1.0, 3.0]
    assert finite(x, failed=0.0).tolist() == [1.0, 0.0, 3.0, 0.0]
    with pytest.raises(ValueError, match="not finite"):
        bootstrap_interval(x)
    with pytest.raises(ValueError, match="no values"):
        finite([float("nan")], failed="drop")
    with pytest.raises(ValueError, match="no values"):
        summary([])


def test_interval_of_two_values_is_their_range() -> None:
    # a resample of {0, 1} has mean 0, 1/2 or 1 with probability 1/4, 1/2, 1/4: both tails hold more than 2.5 %
    assert bootstrap_interval([0.0, 1.0]) == (0.0, 1.0)
    # at 40 % confidence the tails (30 %) reach into the middle value
    assert bootstrap_interval([0.0, 1.0], confidence=0.4) == (0.5, 0.5)
    assert bootstrap_interval([5.0]) == (5.0, 5.0)


def test_interval_is_seeded() -> None:
    x = np.random.default_rng(5).normal(size=30)
    assert bootstrap_interval(x, seed=1) == bootstrap_interval(x, seed=1)
    assert bootstrap_interval(x, seed=1) != bootstrap_interval(x, seed=2)


def test_interval_in_chunks_has_the_asked_number_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def mean(x: np.ndarray, axis: int) -> np.ndarray:
        sizes.append(len(x))
        return x.mean(axis=axis)

    monkeypatch.setattr("outer.statistics._CHUNK", 70)
    bootstrap_interval(np.arange(10.0), mean, samples=25)
    assert sizes == [7, 7, 7, 4]


@pytest.mark.parametrize("bad", [{"confidence": 1.0}, {"confidence": 0.0}, {"samples": 0}])
def test_impossible_arguments_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="must"):
        bootstrap_interval([1.0, 2.0], **bad)


@pytest.mark.parametrize("statistic", [np.mean, interquartile_mean])
def test_interval_covers_the_true_value_of_normal_data(statistic) -> None:
    """The percentile bootstrap of 40 normal values covers a little less than 95 %; 300 trials: one sd is 1.3 points."""
    data = np.random.default_rng(0).normal(3.0, 2.0, size=(300, 40))
    intervals = np.array([bootstrap_interval(x, statistic, samples=1000, seed=i) for i, x in enumerate(data)])
    covered = ((intervals[:, 0] <= 3.0) & (3.0 <= intervals[:, 1])).mean()
    assert 0.89 < covered < 0.98
    # and it is as wide as normal theory says: 2 * 1.96 * sd / sqrt(n), the IQM's standard error is about 1.09 times it
    width = (intervals[:, 1] - intervals[:, 0]).mean()
    assert width == pytest.approx(2 * 1.96 * 2.0 / math.sqrt(40), rel=0.15)


def test_summary_is_plain_json() -> None:
    x = [100.0, 2.0, 4.0, -50.0]
    s = summary(x)
    assert json.loads(json.dumps(s)) == s
    assert (s["mean"], s["iqm"], s["median"], s["n"], s["failed"]) == (14.0, 3.0, 3.0, 4, 0)
    assert s["mean_interval"] == list(bootstrap_interval(x, np.mean))
    assert s["iqm_interval"] == list(bootstrap_interval(x, interquartile_mean))
    with_failure = summary([*x, float("nan")], failed="drop")
    assert with_failure == {**s, "failed": 1}
