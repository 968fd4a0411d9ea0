"""UCB1 over models."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.llm.search.bandit import UCB1, choose_models, rewards
from tests.llm.individuals import individual


def test_the_bound_is_the_papers() -> None:
    bandit = UCB1(["a", "b"])
    for reward in (1.0, 0.0, 1.0):
        bandit.update("a", reward)
    bandit.update("b", 0.5)
    a, b = 2 / 3 + math.sqrt(2 * math.log(4) / 3), 0.5 + math.sqrt(2 * math.log(4))
    assert (b > a) and bandit.choose() == "b"
    greedy = UCB1(["a", "b"], exploration=0.0)
    greedy.sums, greedy.pulls, greedy.known = dict(bandit.sums), {"a": 3, "b": 1}, dict(bandit.known)
    assert greedy.choose() == "a"


@pytest.mark.parametrize("mean, chosen", [(0.2, "a"), (0.3, "b")])
def test_exploration_is_the_root_of_2(mean: float, chosen: str) -> None:
    bandit = UCB1(
        ["a", "b"]
    )  # bounds at t = 10: 1 + sqrt(2 ln 10 / 8) = 1.759 and mean + sqrt(2 ln 10 / 2) = mean + 1.517
    for arm, reward in [*[("a", 1.0)] * 8, *[("b", mean)] * 2]:
        bandit.update(arm, reward)
    assert bandit.choose() == chosen


def test_every_arm_is_tried_first_in_the_order_given_and_ties_keep_it() -> None:
    assert choose_models(["b", "a", "c"], [], 6) == ["b", "a", "c", "b", "a", "c"]


def test_attempts_under_way_count_as_pulls() -> None:
    """One at a time, while none has a reward: a batch would else go to one model."""
    asked: list[str] = []
    for _ in range(9):
        asked += choose_models(["a", "b", "c"], [], 1, asked)
    assert asked == ["a", "b", "c"] * 3
    known = [individual(k, model=m, score=1.0) for k, m in enumerate("abc")]
    assert sorted(choose_models(["a", "b", "c"], known, 1, ["a", "b", "gone"])) == ["c"]


def test_the_better_arm_is_pulled_more_and_the_other_still_sometimes() -> None:
    rng, bandit = np.random.default_rng(0), UCB1(["bad", "good"])
    for _ in range(500):
        arm = bandit.choose()
        bandit.known[arm] += 1
        bandit.sums[arm] += float(rng.random() < {"bad": 0.3, "good": 0.7}[arm])
    assert 20 < bandit.pulls["bad"] < 150 and sum(bandit.pulls.values()) == 500


def test_rewards_are_ranks_of_the_gain_over_the_best_parent() -> None:
    known = [
        individual(0, score=1.0),  # median of its iteration: 2; gain -1
        individual(1, score=3.0),  # gain 1
        individual(2, iteration=1, parents=(0, 1), score=8.0),  # gain 5
        individual(3, iteration=1, parents=(0,), score=2.0),  # gain 1, too
        individual(4, iteration=1, parents=(1,)),  # no score
        individual(5, iteration=2, parents=(4,), score=5.0),  # its parent has none: its own iteration's median; gain 0
    ]
    assert rewards(known) == pytest.approx([1 / 5, 3.5 / 5, 1.0, 3.5 / 5, 0.0, 2 / 5])


@given(st.lists(st.tuples(st.floats(-1e6, 1e6) | st.just(math.nan), st.integers(0, 3)), max_size=12))
def test_rewards_lie_in_0_to_1_and_only_order_counts(rows: list[tuple[float, int]]) -> None:
    def known(factor: float) -> list:  # type: ignore[type-arg]
        return [
            individual(k, iteration=k // 4, parents=(parent,) if parent < k else (), score=score * factor)
            for k, (score, parent) in enumerate(rows)
        ]

    values = rewards(known(1.0))
    assert all((0 < v <= 1) if math.isfinite(s) else v == 0 for v, (s, _) in zip(values, rows))
    assert rewards(known(4.0)) == values  # a power of 2, exact


def test_a_model_whose_calls_fail_loses_its_turns() -> None:
    known = [individual(k, model="ab"[k % 2], score=1.0 if k % 2 else math.nan) for k in range(40)]
    for i in known[::2]:
        i.rejection = ("call", "503 Service Unavailable")
    assert choose_models(["a", "b"], known, 4).count("b") >= 3


def test_models_of_an_earlier_run_do_not_count() -> None:
    assert choose_models(["a"], [individual(0, model="gone", score=1.0)], 2) == ["a", "a"]


def test_arms_are_different() -> None:
    with pytest.raises(ValueError, match="all different"):
        UCB1(["a", "a"])
