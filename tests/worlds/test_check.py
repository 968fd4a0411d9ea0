"""``envolve.worlds.check_learner``: its test is exact, its shares are those of the world, wrong learners are seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envolve.worlds
from envolve.worlds import WorldError, check, check_learner, share, shelf

CARTPOLE = "CartPole-v1-bandit"
SHARES = (0.9, 0.91, 0.92, 0.93, 0.94, 0.95)


@pytest.fixture(autouse=True)
def few_contexts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(check, "CONTEXTS", 200)
    check.ends_of.cache_clear()
    yield
    check.ends_of.cache_clear()


FEW = st.lists(st.integers(0, 4), min_size=3, max_size=5)


@given(FEW, FEW)
@settings(max_examples=60, deadline=None)
def test_the_rank_sum_test_is_that_of_all_orders(a: list[int], b: list[int]) -> None:
    both = np.array(a + b)
    ranks = np.array([(both < x).sum() + ((both == x).sum() + 1) / 2 for x in both])
    sums = np.array([ranks[list(c)].sum() for c in itertools.combinations(range(len(both)), len(a))])
    found = ranks[: len(a)].sum()
    assert check.rank_sum(a, b) == pytest.approx((np.mean(sums <= found), np.mean(sums >= found)))


def test_the_policy_of_a_world_has_all_of_its_reward_and_random_actions_none() -> None:
    for name in ("CartPole-v1-bandit", "Pendulum-v1-bandit", "CliffWalking-v1-bandit"):
        act = envolve.worlds.policy(name)
        assert share(act, f"envolve/{name}") == pytest.approx(1.0, abs=1e-6)
        space = envolve.worlds.open_world(name).action.space
        space.seed(3)
        assert abs(share(lambda x, space=space: space.sample(), name)) < 0.3  # type: ignore[misc]


def test_actions_of_a_box_are_clipped_and_batches_of_one_are_welcome() -> None:
    name = "Pendulum-v1-bandit"
    act = envolve.worlds.policy(name)
    assert share(lambda x: np.sign(act(x))[None] * 9.0, name) == pytest.approx(
        share(lambda x: np.sign(act(x)) * 2, name)
    )
    with pytest.raises(ValueError, match=r"found an action of shape \(2,\), expected one of Box"):
        share(lambda x: np.zeros(2), name)
    for wrong, of in ((np.full(1, np.nan), name), (None, name), (7, CARTPOLE), (0.0, CARTPOLE), (None, CARTPOLE)):
        with pytest.raises(
            ValueError, match=f"act: found .{{1,10}}, expected one of {'Box' if of == name else 'Disc'}"
        ):
            share(lambda x, wrong=wrong: wrong, of)  # type: ignore[misc]
    left = share(lambda x: 0, CARTPOLE)
    assert share(lambda x: False, CARTPOLE) == share(lambda x: np.zeros((1, 1), np.int8), CARTPOLE) == left


def learner(right: float, trained: list[Any] | None = None) -> Callable[[str, int, int], check.Act]:
    """Agents that take the best action with this probability, and a random one otherwise."""

    def train(env_id: str, steps: int, seed: int) -> check.Act:
        if trained is not None:
            trained.append((env_id, steps, seed))
        best, random = envolve.worlds.policy(env_id), np.random.default_rng(seed)
        return lambda x: best(x) if random.random() < right else int(random.integers(2))

    return train


def test_a_learner_is_compared_with_another_one() -> None:
    calls: list[Any] = []
    first, second = "CartPole-v1-bandit-2", "CartPole-v1-bandit-3"
    same = check_learner(learner(0.9), learner(0.9, calls), seeds=6, worlds=[first, f"envolve/{second}"], steps=7)
    assert same.ok and same.same
    assert calls == [(f"envolve/{world}", 7, seed) for world in (first, second) for seed in range(6, 12)]
    worse = check_learner(learner(0.7), learner(0.9), seeds=5, worlds=[first], steps=7)
    assert not worse.ok and not worse.same and worse.worse == pytest.approx(1 / 252)
    assert "after 7 steps, of 5 agents here and 5 of the other learner:\n  CartPole-v1-bandit-2: 0.6" in str(worse)
    assert "This learner is worse (p = 0.004): look for a bug" in str(worse)
    better = check_learner(learner(0.9), worse.shares, seeds=5, steps=7)
    assert better.ok and not better.same and better.different == pytest.approx(2 / 252)
    assert "another one, and not worse" in str(better) and "5 of the earlier check" in str(better)


def right_in_nine_of_ten(env_id: str, steps: int, seed: int) -> check.Act:
    return learner(0.9)(env_id, steps, seed)


def test_processes_train_the_same_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "CONTEXTS", 1000)  # as in the processes
    check.ends_of.cache_clear()
    told: list[Any] = []
    words: dict[str, Any] = {"worlds": ["CartPole-v1-bandit-2", "CartPole-v1-bandit-3"], "steps": 7, "seeds": [0, 1, 2]}
    one = check.shares_of(right_in_nine_of_ten, **words)
    two = check.shares_of(right_in_nine_of_ten, **words, workers=2, told=lambda *row: told.append(row))
    assert one == two and list(one) == words["worlds"]
    assert sorted(told) == [(world, seed, one[world][seed]) for world in words["worlds"] for seed in words["seeds"]]


def test_one_world_of_two_is_enough_to_see_a_bug() -> None:
    """A learner that is right in the first world alone."""

    def train(env_id: str, steps: int, seed: int) -> check.Act:
        return learner(0.9 if env_id.endswith("-2") else 0.6)(env_id, steps, seed)

    found = check_learner(train, learner(0.9), seeds=6, worlds=["CartPole-v1-bandit-2", "CartPole-v1-bandit-3"])
    assert [w.worse < 0.01 for w in found.worlds] == [False, True] and not found.ok
    assert found.worse == pytest.approx(2 / 924)


def test_a_reference_says_worlds_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    other = check.Reference(11, {"CartPole-v1-bandit-3": SHARES})
    monkeypatch.setitem(check.REFERENCES, "ppo_continuous", other)
    calls: list[Any] = []
    found = check_learner(learner(1.0, calls), "ppo_continuous", seeds=4)
    assert calls == [("envolve/CartPole-v1-bandit-3", 11, seed) for seed in range(4)]
    assert found.worlds[0].reference == SHARES and found.shares == {"CartPole-v1-bandit-3": pytest.approx((1.0,) * 4)}
    assert "4 agents here and 6 of Stable-Baselines3's PPO, continuous:" in str(found) and found.ok


def test_bad_input_costs_no_training() -> None:
    calls: list[Any] = []
    train = learner(1.0, calls)
    with pytest.raises(ValueError, match="like: found 'pppo', expected one of .*; did you mean ppo"):
        check_learner(train, "pppo")
    with pytest.raises(ValueError, match="seeds: found 0, expected at least 1"):
        check_learner(train, seeds=0)
    with pytest.raises(ValueError, match="workers: found 0, expected at least 1"):
        check_learner(train, workers=0)
    for shares in ({"CartPole-v1-bandit": [0.5, float("nan"), 1.0]}, {}):
        with pytest.raises(ValueError, match="expected a name, a function, or shares of agents by world"):
            check_learner(train, shares)
    for like in (train, {"CartPole-v1-bandit": SHARES, "CartPole-v1-bandt": SHARES}):
        with pytest.raises(WorldError, match="did you mean CartPole-v1-bandit"):
            check_learner(train, like, seeds=6, worlds=["CartPole-v1-bandit", "CartPole-v1-bandt"])
    assert not calls


def test_a_file_is_a_world_but_no_id() -> None:
    path = shelf.path_of(CARTPOLE)
    assert share(envolve.worlds.policy(path), path) == pytest.approx(1.0, abs=1e-6)
    assert envolve.worlds.card(path) == envolve.worlds.card(CARTPOLE)
    assert envolve.worlds.open_world(path).task == envolve.worlds.open_world(str(path)).task
    with pytest.raises(ValueError, match="found the file .*, expected a name, as gymnasium.make takes no file"):
        check_learner(learner(1.0), learner(1.0), seeds=6, worlds=[str(path)])


def test_agents_that_could_show_nothing_are_not_trained() -> None:
    calls: list[Any] = []
    train = learner(1.0, calls)
    with pytest.raises(ValueError, match="5 agents beside 5 in each of 2 worlds can show no .* never below 0.016"):
        check_learner(train, train)
    with pytest.raises(ValueError, match="2 agents beside 20 in each of 2 worlds can show no difference"):
        check_learner(train, "ppo", seeds=2)
    with pytest.raises(ValueError, match="5 agents beside 0 in each of 1 worlds"):
        check_learner(train, {"CartPole-v1-bandit": []})
    assert not calls


@pytest.mark.parametrize("name", ["ppo", "a2c", "dqn"])
def test_random_agents_are_worse_than_every_reference(name: str) -> None:
    assert not check_learner(learner(0.5), name).ok and check_learner(learner(1.0), name).ok
