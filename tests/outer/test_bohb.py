"""BOHB: brackets as published, failures, the same trials for the same seed, and that it finds more than chance does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("hpbandster", reason="hpbandster is not installed")
from outer.bohb import BOHB, ladder

A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
P = 1e-4 * np.array([
    [1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
    [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381],
])  # fmt: skip
C, LEAST = np.array([1.0, 1.2, 3.0, 3.2]), -3.32237


def hartmann6(x):
    """https://www.sfu.ca/~ssurjano/hart6.html; its minimum is LEAST."""
    return -float(C @ np.exp(-(A * (x - P) ** 2).sum(1)))


@pytest.mark.parametrize(
    "least, most, eta, budgets",
    [
        (1, 243, 3, [1, 3, 9, 27, 81, 243]),  # hpbandster: five
        (1, 1000, 10, [1, 10, 100, 1000]),  # hpbandster: three
        (1, 27, 3, [1, 3, 9, 27]),
        (1 / 9, 1, 3, [1 / 9, 1 / 3, 1]),
        (2, 27, 3, [3, 9, 27]),
        (5, 5, 3, [5]),
        (1, 10, 2, [1.25, 2.5, 5, 10]),
    ],
)
def test_the_ladder_has_every_rung(least, most, eta, budgets):
    found = ladder(least, most, eta)
    assert found == pytest.approx(budgets) and found[-1] == most
    assert all(type(budget) is float for budget in found)


@given(st.floats(1e-3, 10), st.integers(0, 6), st.sampled_from([2.0, 3.0, 4.0, 10.0]))
def test_a_ladder_of_whole_powers_has_one_rung_more(least, rungs, eta):
    assert len(ladder(least, least * eta**rungs, eta)) == rungs + 1


@pytest.mark.parametrize("budgets", [(0, 1, 3), (2, 1, 3), (1, 9, 1), (1, math.inf, 3), (math.nan, 1, 3)])
def test_a_ladder_that_makes_no_sense_is_refused(budgets):
    with pytest.raises(ValueError, match="expected 0 < least <= most and eta > 1"):
        ladder(*budgets)


def search(seed=0, budgets=(1, 9, 3), D=2):
    return BOHB([-1.0] * D, [3.0] * D, budgets, seed)


def play(bohb, count, loss=lambda x, budget: float((x**2).sum())):
    """Trials one after the other -> (x, budget, loss)."""
    seen = []
    for _ in range(count):
        i, x, budget = bohb.ask()
        seen.append((x, budget, loss(x, budget)))
        bohb.tell(i, seen[-1][-1])
    return seen


def test_brackets_are_hyperbands():
    seen = play(search(), 9 + 3 + 1 + 5 + 1 + 3)  # of 9, 5 and 3 points
    assert [budget for _, budget, _ in seen] == [1] * 9 + [3] * 3 + [9] + [3] * 5 + [9] + [9] * 3
    first = seen[:9]
    best = sorted(first, key=lambda trial: trial[2])[:3]
    for (x, _, _), (again, _, _) in zip(best, seen[9:12], strict=True):
        np.testing.assert_array_equal(x, again)
    np.testing.assert_array_equal(seen[12][0], best[0][0])


def test_points_lie_within_the_bounds_and_are_plain_numbers():
    bohb = BOHB([-1.0, 100.0], [3.0, 101.0], (1, 9, 3), 0)
    for _ in range(60):
        i, x, budget = bohb.ask()
        assert type(i) is int and type(budget) is float and x.dtype == np.float64 and x.shape == (2,)
        assert (x >= [-1, 100]).all() and (x <= [3, 101]).all()
        bohb.tell(i, np.float32(x.sum()))
    assert bohb.model_picks > 5 and bohb.random_picks > 5


def test_failures_do_not_go_on_and_a_bracket_of_failures_ends():
    bohb = search()
    for k in range(9):
        i, _, budget = bohb.ask()
        bohb.tell(i, [math.nan, math.inf, 1.0][k % 3] if k > 2 else math.nan)
    assert [bohb.ask()[2] for _ in range(3)] == [3, 3, 3], "the two that did not fail, and the next bracket's first"
    assert [bohb.started, len(bohb.out)] == [2, 3]
    bohb = search()
    play(bohb, 40, lambda x, budget: math.nan)
    assert bohb.model_picks + bohb.random_picks == 40, "none was promoted"


def test_several_trials_may_be_out():
    bohb = search()
    asked = [bohb.ask() for _ in range(20)]  # 9 of the first bracket, 5, 3, and a fourth
    assert [budget for _, _, budget in asked] == [1] * 9 + [3] * 5 + [9] * 3 + [1] * 3
    assert len({i for i, _, _ in asked}) == 20
    for i, x, _ in reversed(asked[:9]):
        bohb.tell(i, float((x**2).sum()))
    i, x, budget = bohb.ask()
    assert budget == 3 and any(np.array_equal(x, y) for _, y, _ in asked[:9]), "the oldest bracket goes on"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 3))
def test_no_trial_is_lost_whatever_the_order(asks, seed):
    bohb, out = search(seed), []
    for ask in asks:
        if ask or not out:
            out.append(bohb.ask())
        else:
            i, x, _ = out.pop(len(out) // 2)
            bohb.tell(i, math.nan if i % 7 == 3 else float(x.sum()))
    assert sorted(bohb.out) == sorted(i for i, _, _ in out)
    for bracket in bohb.brackets:
        assert bracket.wanted >= 0 and len(bracket.trials) <= bracket.sizes[bracket.rung]


def test_the_same_seed_asks_the_same_and_leaves_others_random_numbers_alone():
    def trials(seed, noise):
        bohb, seen = search(seed), []
        for _ in range(50):
            i, x, budget = bohb.ask()
            seen.append([*x, budget])
            if noise:
                np.random.rand(3)  # noqa: NPY002
            bohb.tell(i, float((x**2).sum()))
        return seen, bohb.model_picks

    np.random.seed(5)  # noqa: NPY002
    expected = np.random.rand(3)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    once = trials(1, False)
    np.testing.assert_array_equal(np.random.rand(3), expected)  # noqa: NPY002
    assert once == trials(1, True) and once[1] > 5
    assert once != trials(2, False)


def test_a_search_is_resumed_by_telling_it_again():
    bohb = search(3)
    told = play(bohb, 37)
    again = search(3)
    for _, _, loss in told:
        again.tell(again.ask()[0], loss)
    for _ in range(10):
        (i, x, budget), (j, y, other) = bohb.ask(), again.ask()
        assert (i, budget) == (j, other) and np.array_equal(x, y)


def test_wrong_calls_are_refused():
    bohb = search()
    i, _, _ = bohb.ask()
    bohb.tell(i, 1.0)
    for wrong in (i, 99):
        with pytest.raises(KeyError, match=f"trial {wrong} was not asked for"):
            bohb.tell(wrong, 1.0)
    for lower, upper in [([0, 1], [1, 1]), ([0], [math.inf]), ([math.nan], [1])]:
        with pytest.raises(ValueError, match="finite and below"):
            BOHB(lower, upper, (1, 9, 3), 0)
    for lower, upper in [([], []), ([0, 0], [1]), ([[0.0]], [[1.0]])]:
        with pytest.raises(ValueError, match="shapes"):
            BOHB(lower, upper, (1, 9, 3), 0)


def regret(seed, proposes=None):
    """Of the point with the least loss seen at the full budget, after 60 full budgets. Cheap trials are noisier.

    proposes: a generator of points that are all trained in full, instead of BOHB."""
    noise, most = np.random.default_rng(seed), 27.0
    bohb, spent, best = BOHB(np.zeros(6), np.ones(6), (1, most, 3), seed), 0.0, (math.inf, math.inf)
    while spent < 60 * most:
        i, x, budget = (0, proposes.random(6), most) if proposes else bohb.ask()
        true = hartmann6(x)
        seen = true + 0.1 * math.sqrt(most / budget) * noise.normal()
        if not proposes:
            bohb.tell(i, seen)
        spent += budget
        if budget == most:
            best = min(best, (seen, true - LEAST))
    return best[1]


@pytest.mark.slow
def test_it_finds_more_than_chance_does():
    """The measured mean of hpbandster's own loop on this function is 0.41, of random points 1.37 (five seeds each)."""
    ours = [regret(seed) for seed in range(5)]
    chance = [regret(seed, np.random.default_rng(100 + seed)) for seed in range(5)]
    print("BOHB", np.round(ours, 3), "random", np.round(chance, 3))
    assert np.mean(ours) < 0.7 and np.mean(ours) < 0.6 * np.mean(chance)
