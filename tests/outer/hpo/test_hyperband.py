"""Ladders and brackets as published, and as hpbandster's where hpbandster is right."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.outer.hpo.hyperband import HyperbandSearch, bracket_sizes, ladder


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


@pytest.mark.parametrize("policy", ["hyperband", "aggressive"])
@pytest.mark.parametrize("least, most, right", [(1, 27, True), (1, 9, True), (3, 81, True), (1, 729, True),
                                                (5, 5, True), (2, 27, True), (1, 243, False)])  # fmt: skip
def test_brackets_are_hpbandsters(least, most, right, policy, monkeypatch):
    """Its own classes, without the processes around them. Budgets of all brackets, and sizes of those where n = (S + 1)
    / (s + 1) eta^s is whole: it rounds the quotient down and then multiplies, the paper rounds the product up."""
    pytest.importorskip("hpbandster")
    from hpbandster.core.master import Master
    from hpbandster.optimizers.hyperband import HyperBand

    class Loop:
        def __init__(self, num_configs, budgets, **_):
            self.num_configs, self.budgets = num_configs, list(budgets)

    monkeypatch.setattr("hpbandster.optimizers.hyperband.SuccessiveHalving", Loop)
    monkeypatch.setattr(Master, "__init__", lambda self, *_, **__: vars(self).update(config={}, config_generator=self))
    monkeypatch.setattr(HyperBand, "get_config", None, raising=False)
    theirs = HyperBand(configspace=object(), eta=3, min_budget=least, max_budget=most)
    budgets = ladder(least, most, 3)
    assert (len(budgets) == theirs.max_SH_iter) is right
    if not right:
        return
    for number in range(2 * len(budgets)):
        expected = theirs.get_next_iteration(number if policy == "hyperband" else 0)
        sizes = bracket_sizes(policy, len(budgets), number, 3)
        assert budgets[-len(sizes) :] == pytest.approx(expected.budgets)
        if policy == "aggressive" or len(budgets) % len(sizes) == 0:
            assert sizes == expected.num_configs
        else:
            assert sizes[0] > expected.num_configs[0]


def test_the_aggressive_bracket_is_the_originals():
    """max(int(eta^s eta^-i), 1), with the right number of rungs."""
    assert bracket_sizes("aggressive", 6, 4, 3) == [243, 81, 27, 9, 3, 1]
    assert bracket_sizes("aggressive", 2, 0, 3) == [3, 1]  # its published spaces: budgets 1 to 3
    assert bracket_sizes("aggressive", 1, 7, 3) == [1]
    assert bracket_sizes("aggressive", 4, 1, 2.5) == [15, 6, 2, 1]


def test_brackets_of_hyperband():
    assert [bracket_sizes("hyperband", 4, k, 3) for k in range(5)] == [
        [27, 9, 3, 1],
        [12, 4, 1],
        [6, 2],
        [4],
        [27, 9, 3, 1],
    ]


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="found 'greedy'; expected hyperband or aggressive"):
        HyperbandSearch((1, 9, 3), "greedy")
