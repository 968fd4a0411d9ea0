"""The eight score transforms and centred ranks: the specification's fixtures, and what holds for any scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.outer.search.transforms import centred_ranks, score_transform

SCORES, MEAN_ORIG = [1, 0, 5, 3, 2, 2.5, -1, 4], 2.0
BEST = [0, 0, 1, 0, 0, 0, 0, 0]
FIXTURES = {  # spec 9 (g), six digits
    0: [0.333333, 0.166667, 1, 0.666667, 0.5, 0.583333, 0, 0.833333],
    1: [0.285714, 0.142857, 1, 0.714286, 0.428571, 0.571429, 0, 0.857143],
    2: [-0.338994, -0.338994, 1, 0.085995, -0.338994, -0.153346, -0.338994, 0.423327],
    3: [0, 0, 1, 0.317394, 0, 0.138647, 0, 0.569323],
    4: BEST,
    5: BEST,
    6: [0, 0, 1, 0.333333, 0, 0.166667, 0, 0.666667],
    7: [0, 0, 0.461538, 0.153846, 0, 0.076923, 0, 0.307692],
}
scores = st.lists(st.integers(-1000, 1000).map(lambda i: i / 8), min_size=1, max_size=40).map(np.array)
kinds = st.integers(0, 7)


@pytest.mark.parametrize("kind", range(8))
def test_fixture(kind):
    np.testing.assert_allclose(score_transform(np.array(SCORES), kind, MEAN_ORIG), FIXTURES[kind], atol=1e-6)


def test_three_scores():
    np.testing.assert_allclose(score_transform(np.array([1, 0, 5]), 0, 0.0), [0.2, 0, 1], atol=1e-6)
    assert score_transform(np.array([1, 0, 5]), 1, 0.0).tolist() == [0.5, 0, 1]


def test_type_3_of_sixteen():
    """Ranks 1 to 8 count, ln(9 / rank) / ln(9), and sum up to 3.17."""
    f = score_transform(np.arange(16.0), 3, 0.0)
    expected = [max(0.0, math.log(9 / rank)) / math.log(9) for rank in range(16, 0, -1)]
    np.testing.assert_allclose(f, expected, atol=1e-12)
    assert (f > 0).sum() == 8 and abs(f.sum() - 3.17) < 0.005


@pytest.mark.parametrize("kind", [5, 6, 7])
def test_nothing_beats_the_unperturbed_world(kind):
    """Within 1e-6 of its mean does not count as better: the update is nil, not NaN."""
    assert score_transform(np.array([1.0, 2.0, 2.0 + 1e-7]), kind, 2.0).tolist() == [0, 0, 0]


def test_single_best_counts_even_below_the_unperturbed_world():
    assert score_transform(np.array([1.0, 3.0, 2.0]), 4, 100.0).tolist() == [0, 1, 0]


def test_one_member():
    one = np.array([3.0])
    assert score_transform(one, 0, 0.0).tolist() == [0]
    assert score_transform(one, 1, 0.0).tolist() == [0]  # the original divided by zero
    for kind in (2, 3, 4, 5, 6, 7):
        np.testing.assert_allclose(score_transform(one, kind, 0.0), [1.0], err_msg=str(kind))
    assert centred_ranks(one).tolist() == [-0.5]


def test_an_array_of_integers_is_not_truncated():
    for kind in range(8):
        integers = score_transform(np.array([3, 1, 2]), kind, 1.5)
        assert np.array_equal(integers, score_transform(np.array([3.0, 1.0, 2.0]), kind, 1.5))


def test_unknown_type():
    with pytest.raises(ValueError, match="found 8, expected 0 to 7"):
        score_transform(np.array([1.0, 2.0]), 8, 0.0)


@given(scores, kinds, st.integers(-1000, 1000))
def test_bounds_and_order(k, kind, mean_orig):
    before = k.copy()
    f = score_transform(k, kind, float(mean_orig))
    assert np.array_equal(k, before) and f.shape == k.shape and np.isfinite(f).all()
    assert f.max() <= 1 + 1e-9
    if kind != 2:
        assert f.min() >= 0
    order = np.argsort(k, kind="stable")
    ranked, sorted_scores = f[order], k[order]
    distinct = np.diff(sorted_scores) > 0
    assert (np.diff(ranked)[distinct] >= -1e-12).all(), "a better score has no smaller weight"
    if kind in (0, 1):
        assert (np.diff(ranked)[distinct] > 0).all()
    if kind in (2, 3, 4) or (kind > 4 and f.any()):
        assert f[int(np.argmax(k))] == f.max() > 0
    if kind == 7 and f.any():
        assert abs(f.sum() - 1) < 1e-9
    if kind in (5, 6, 7):
        assert not f[k <= mean_orig].any()


@given(scores, kinds, st.floats(-100, 100), st.sampled_from([0.25, 1.0, 8.0]))
def test_scale_of_the_task_does_not_matter(k, kind, shift, scale):
    """Every transform is blind to units, up to its 1e-9 and 1e-6: what follows from rewards of 100 follows from 1."""
    shift = round(shift)
    a = score_transform(k, kind, float(k.mean()))
    b = score_transform(k * scale + shift, kind, float((k * scale + shift).mean()))
    np.testing.assert_allclose(a, b, atol=1e-6)


@given(scores)
def test_centred_ranks(k):
    u = centred_ranks(k)
    assert u.min() >= -0.5 and u.max() <= 0.5 and (len(k) == 1 or abs(u.sum()) < 1e-9)
    for i in range(len(k)):
        for j in range(len(k)):
            assert (k[i] < k[j]) == (u[i] < u[j]) and (k[i] == k[j]) == (u[i] == u[j])


def test_centred_ranks_by_hand():
    assert centred_ranks(np.array([10.0, -1.0, 3.0])).tolist() == [0.5, -0.5, 0.0]
    assert centred_ranks(np.array([2.0, 2.0, 5.0])).tolist() == [-0.25, -0.25, 0.5]
    assert centred_ranks(np.full(6, 7.0)).tolist() == [0] * 6, "equal scores give no direction"
