"""Interquartile mean and intervals, against hand-computed values; test_coverage.py measures what intervals hold."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.core.statistics import (
    IQM,
    MEAN,
    finite,
    interquartile_mean,
    interval,
    intervals,
    of_worlds,
    summary,
    within,
)

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
        interval(x)
    with pytest.raises(ValueError, match="no values"):
        finite([float("nan")], failed="drop")
    with pytest.raises(ValueError, match="no values"):
        summary([])


def test_equal_values_alone_have_no_interval() -> None:
    """[200, 200] would say that no agent ever fails."""
    for x in ([200.0] * 20, [5.0], [0.1 + 0.2, 0.3, 0.3]):
        assert all(map(math.isnan, interval(x))) and all(map(math.isnan, interval(x, IQM)))
    s = summary([200.0] * 20)
    assert s["mean_interval"] is None and s["iqm_interval"] is None and s["all_equal"]
    assert s["unseen_share"] == pytest.approx(1 - 0.05 ** (1 / 20)) == pytest.approx(0.139, abs=1e-3)


def test_bounds_tell_how_far_what_was_not_seen_may_go() -> None:
    """20 of 20 at the ceiling: the share p that may fail has (1 - p)^20 = 2.5 % (Clopper and Pearson, two-sided), and
    a failure may be worth 0."""
    low, high = interval([200.0] * 20, bounds=(0.0, 200.0))
    assert high == 200 and low == pytest.approx(200 * 0.025 ** (1 / 20), rel=0.01)
    assert interval([200.0] * 20, IQM, bounds=(0.0, 200.0)) == (200.0, 200.0)  # a quarter must fail to change it
    assert interval([200.0] * 5, IQM, bounds=(0.0, 200.0))[0] < 150
    assert interval([0.0, 1.0, 0.5], bounds=(0.0, 1.0)) == interval([0.0, 1.0, 0.5], bounds=(0.0, 1.0))
    with pytest.raises(ValueError, match="bounds must hold all values"):
        interval([1.0, 2.0], bounds=(1.5, 3.0))


@given(st.lists(FINITE, min_size=2, max_size=30), st.sampled_from([MEAN, IQM]))
def test_an_interval_holds_the_samples_own_value(values: list[float], statistic: str) -> None:
    low, high = interval(values, statistic)
    own = float(np.mean(values)) if statistic == MEAN else interquartile_mean(values)
    slack = 1e-6 * max(1.0, *map(abs, values))
    assert math.isnan(low) or low - slack <= own <= high + slack


def test_an_interval_moves_and_stretches_with_the_values() -> None:
    x = np.random.default_rng(5).normal(size=30)
    low, high = interval(x)
    assert interval(3 * x + 7) == pytest.approx((3 * low + 7, 3 * high + 7))
    assert interval(-x) == pytest.approx((-high, -low), abs=0.02)  # other draws
    assert interval(x, confidence=0.5)[0] > low and interval(x)[0] == low


def test_columns_are_what_they_are_alone() -> None:
    x = np.random.default_rng(6).normal(size=(12, 5))
    low, high = intervals(x, IQM)
    np.testing.assert_allclose(np.column_stack([low, high]), [interval(column, IQM) for column in x.T])


def test_many_values_are_drawn_in_blocks() -> None:
    x = np.random.default_rng(7).normal(size=3000)
    low, high = interval(x)
    assert high - low == pytest.approx(2 * 1.96 / math.sqrt(3000), rel=0.1) and low < x.mean() < high


@pytest.mark.parametrize("bad", [{"confidence": 1.0}, {"confidence": 0.0}, {"statistic": "median"}])
def test_impossible_arguments_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="must"):
        interval([1.0, 2.0], **bad)


@given(st.lists(st.floats(0, 200), min_size=2, max_size=6), st.floats(0, 200))
def test_what_is_impossible_is_cut_off_and_covers_as_often(values: list[float], truth: float) -> None:
    """Whatever the true mean, which is possible, the interval holds it if and only if it did before."""
    low, high = interval(values)
    a, b = within(low, high, (0.0, 200.0))
    assert (low <= truth <= high) == (a <= truth <= b)
    assert math.isnan(a) or 0 <= a <= b <= 200
    assert within(low, high, None) == (low, high) or math.isnan(low)


def test_two_agents_of_cartpole_do_not_return_more_than_there_is() -> None:
    low, high = interval([150.0, 190.0])
    assert low < 0 and high > 200 and within(low, high, (0.0, 200.0)) == (0.0, 200.0)


def test_worlds_are_what_is_counted() -> None:
    """Agents of one world are alike: ten worlds of forty agents each are ten values and not four hundred."""
    rng = np.random.default_rng(8)
    worlds = [f"w{i}" for i in range(10) for _ in range(40)]
    x = (rng.normal(size=10).repeat(40) + 0.01 * rng.normal(size=400)).tolist()
    means = of_worlds(x, worlds)
    assert means == pytest.approx([float(np.mean(x[i : i + 40])) for i in range(0, 400, 40)])
    low, high = interval(means)
    assert high - low > 4 * (interval(x)[1] - interval(x)[0])
    assert of_worlds([1.0, 2.0], []) == of_worlds([1.0, 2.0], ["a", "a"]) == [1.0, 2.0]
    assert of_worlds([1.0, math.nan, math.nan], ["a", "a", "b"])[0] == 1.0


def test_summary_is_plain_json() -> None:
    x = [100.0, 2.0, 4.0, -50.0]
    s = summary(x)
    assert json.loads(json.dumps(s)) == s
    assert (s["mean"], s["iqm"], s["median"], s["n"], s["failed"]) == (14.0, 3.0, 3.0, 4, 0)
    assert s["mean_interval"] == list(interval(x, MEAN))
    assert s["iqm_interval"] == list(interval(x, IQM))
    with_failure = summary([*x, float("nan")], failed="drop")
    assert with_failure == {**s, "failed": 1}
