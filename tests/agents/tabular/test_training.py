"""Tabular learners: the compiled twin against the PyTorch path, both against the rules in plain Python."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envolve.agents.common import rollout
from envolve.agents.common.hyper import Hyper, draw
from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED, TrainResult
from envolve.agents.common.sections import TabularSection
from envolve.agents.kernels.building.ahead import compiled_ahead
from envolve.agents.tabular.loop import PER_MEMBER
from envolve.agents.tabular.training import ALGORITHMS, KINDS, NO_NOISE, RewardNoise, train_tabular
from envolve.core import rng
from envolve.envs.classic.bandit import Bandit
from envolve.envs.classic.gridworld import Cliff
from envolve.envs.worlds.world import RealTask, tables
from tests.examples import ALL, examples, some_slow

TASK = Cliff()
FEW = ("ql", "sarsa_cb")  # each is compiled apart; these two have both rules and the bonus
SOME = ALGORITHMS if ALL else FEW
CLIFF = (TASK.next_state, TASK.reward, TASK.done, TASK.start_state)
CLIFF_WORLD = tuple(table[None] for table in CLIFF[:3])
PUBLISHED = dict(alpha=1.0, gamma=0.8, eps_init=0.1, eps_min=0.1, eps_decay=0.0, test_episodes=1)
F = np.float32


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """In processes of its own, in a third of the time that numba takes here."""
    compiled_ahead("ql")


def hyper(members: int, **changes) -> Hyper:
    return draw(TabularSection(**{**PUBLISHED, **changes}), np.arange(members))


def assert_same(a: TrainResult, b: TrainResult) -> None:
    for field in dataclasses.fields(TrainResult):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name), err_msg=field.name)


def both(algorithm, h, world, task, kind, max_steps, solved, test_each, keys, noise=NO_NOISE) -> TrainResult:
    arguments = (algorithm, h, world, task, kind, max_steps, solved, test_each, keys)
    compiled = train_tabular(*arguments, backend="compiled", noise=noise)
    assert_same(compiled, train_tabular(*arguments, backend="torch", noise=noise))
    return compiled


# ------------------------------------------------------------------------------------------------- the twins agree


def random_tables(draws: np.random.Generator, members: int, states: int, actions: int, kind: str):
    """Tables as a world may have them: ties, raw done values on both thresholds, huge rewards."""
    shape = (members, states, actions)
    scale = draws.choice([0.0, 1.0, 1.0, 1.0, 1e38])
    with np.errstate(over="ignore"):  # infinite now and then
        reward = np.round(draws.normal(size=shape), 1).astype(F) * F(scale)
    done = draws.choice([0.0, 0.3, 0.5, 0.6, 1.0, -2.0] if kind == "se" else [0.0, 0.0, 0.0, 1.0], shape)
    return draws.integers(0, states, shape), reward, done.astype(F)


@settings(deadline=None, max_examples=examples(50))
@given(
    st.sampled_from(SOME),
    st.sampled_from(KINDS),
    st.integers(0, 2**32),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 8),
    st.booleans(),
    st.booleans(),
    st.fixed_dictionaries(
        dict(
            train_episodes=st.integers(1, 12),
            test_episodes=st.integers(1, 3),
            init_episodes=st.integers(0, 3),
            same_action_num=st.integers(1, 3),
            early_out_num=st.integers(1, 4),
            early_out_min_steps=st.integers(0, 40),
            early_out_virtual_diff=st.sampled_from([0.0, 0.02, 0.5]),
            bootstrap_time_limit=st.booleans(),
            published_sarsa=st.booleans(),
        )
    ),
    st.builds(RewardNoise, st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 2.0])),
)
def test_back_ends_are_equal_bit_for_bit(
    algorithm, kind, seed, members, states, actions, max_steps, each, shared, options, noise
):
    draws = np.random.default_rng(seed)
    world = random_tables(draws, 1 if shared else members, states, actions, kind)
    task = tuple(table[0] for table in random_tables(draws, 1, states, actions, "real")) + (0,)
    h = hyper(members, **options)
    for name in PER_MEMBER[:6]:
        h.values[name] = draws.choice([0.0, 1.0, 0.7, draws.random()], members)
    h.values["batch_size"] = draws.integers(1, 4, members)
    h.values["train_steps"] = draws.choice([0, 1, 10, 30], members)
    keys = draws.integers(-(2**63), 2**63 - 1, members)
    both(algorithm, h, world, task, kind, max_steps, draws.choice([-1.0, 0.5, 1e9]), each, keys, noise)


ON_CLIFF = [f"{kind}-{algorithm}" for kind in KINDS for algorithm in ALGORITHMS]


@pytest.mark.parametrize("case", some_slow(ON_CLIFF, fast=("real-ql", "se-sarsa_cb", "rn-ql")))
def test_back_ends_are_equal_on_cliff(case):
    """The test above has all of these cases, with small tables."""
    kind, algorithm = case.split("-")
    both(algorithm, hyper(3, train_episodes=100), CLIFF_WORLD, CLIFF, kind, 50, -20.0, kind == "rn", np.arange(3))


@pytest.mark.parametrize("backend", ["compiled", "torch"])
def test_a_batch_of_members_is_as_many_separate_runs(backend):
    draws = np.random.default_rng(3)
    world = random_tables(draws, 5, 48, 4, "se")
    world[1][2, 7, 1] = np.nan  # a member that diverges harms no other
    keys = draws.integers(-(2**63), 2**63 - 1, 5)
    h = hyper(5, train_episodes=20)
    h["alpha"][:], h["batch_size"][:] = draws.random(5), [1, 2, 3, 1, 2]
    arguments = (CLIFF, "se", 20, -20.0, False)
    together = train_tabular("sarsa_cb", h, world, *arguments, keys, backend)
    for p in range(5):
        alone = train_tabular(
            "sarsa_cb", h.take([p]), [t[p : p + 1] for t in world], *arguments, keys[p : p + 1], backend
        )
        assert_same(alone, TrainResult(*(getattr(together, f.name)[p : p + 1] for f in dataclasses.fields(together))))


def test_tables_may_be_tensors_of_a_world():
    arguments = (CLIFF, "real", 50, -20.0, False, np.arange(3))
    world = tables(RealTask(TASK, 3))
    assert_same(
        train_tabular("ql", hyper(3), world, *arguments), train_tabular("ql", hyper(3), CLIFF_WORLD, *arguments)
    )


@pytest.mark.parametrize("members", [1, 3, 50])
def test_threads_do_not_change_the_result(members):
    runs = [
        train_tabular("ql", hyper(members), CLIFF_WORLD, CLIFF, "real", 50, -20.0, True, np.arange(members), threads=n)
        for n in (1, 2, 7)
    ]
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])


# --------------------------------------------------------------------------------- the rules, written out once more


def by_hand(algorithm, h, world, start, kind, max_steps, key, episodes, noise):
    """One member that always explores: its actions are known beforehand, so the rules are a few lines."""
    key, noise_key = (rng.fold(torch.tensor([key]), stream) for stream in (rng.EXPLORE, rng.REWARD))

    def random_action(counter):
        return (int(rng.bits(key, torch.tensor([counter]))) & (2**32 - 1)) * actions >> 32

    next_state, reward, done = (table[0] for table in world)
    actions = reward.shape[1]
    alpha, gamma, section = F(h["alpha"][0]), F(h["gamma"][0]), h.section
    q, visits, d, u, n = np.zeros_like(reward), np.zeros_like(reward), 0, 0, 0
    for e in range(episodes):
        s, t, over = start, 0, False
        while not over:
            a = random_action(d)
            d += 1
            r, s2 = F(0), s
            for _ in range(section.same_action_num):
                r += reward[s2, a] + F(noise) * F(rng.normal(noise_key, torch.tensor([n])).item())
                raw, s2 = done[s2, a], next_state[s2, a]
                t, n = t + 1, n + 1
                if raw > 0.5 or t >= max_steps:
                    break
            over = raw > 0.5 or t >= max_steps
            stored = raw if kind == "se" or not over or section.bootstrap_time_limit else 1.0
            first = u
            for _ in range(int(h["batch_size"][0]) if e >= section.init_episodes else 0):
                visits[s, a] += 1
                bonus = F(h["beta"][0] / (np.sqrt(visits[s, a]) + 1e-9)) if algorithm.endswith("_cb") else F(0)
                if algorithm.startswith("ql"):
                    value = q[s2].max()
                else:  # a' is what is executed next; where nothing is, a draw of its own; as published, one per update
                    counter = 2**40 + u if section.published_sarsa else 2**40 + first if over else d
                    value = q[s2, random_action(counter)]
                target = r + bonus + (gamma * value if stored < 0.5 else F(0))
                q[s, a] += alpha * (target - q[s, a])
                u += 1
            s = s2
    return q, u


@pytest.mark.parametrize("algorithm", some_slow(ALGORITHMS, fast=FEW))
@pytest.mark.parametrize("kind", ["real", "se"])
@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(same_action_num=3),
        dict(bootstrap_time_limit=False),
        dict(init_episodes=2, batch_size=3),
        dict(published_sarsa=True, batch_size=2),
    ],
)
def test_updates_follow_the_rules(algorithm, kind, options, noise):
    draws = np.random.default_rng(17)
    world = random_tables(draws, 1, 5, 3, kind)
    world = (world[0], draws.normal(size=(1, 5, 3)).astype(F), world[2] if kind == "se" else world[2] * 0)
    task = tuple(table[0] for table in world) + (2,)
    h = hyper(1, alpha=0.5, eps_init=1.0, eps_min=1.0, train_episodes=6, early_out_virtual_diff=0.0, **options)
    result = train_tabular(algorithm, h, world, task, kind, 7, 1e9, False, np.array([-5]), noise=RewardNoise(noise))
    q, updates = by_hand(algorithm, h, world, 2, kind, 7, -5, 6, noise)
    np.testing.assert_array_equal(result.weights[0].reshape(5, 3), q)
    assert result.updates[0] == updates and updates > 0


def corridor(reward: float = -1.0):
    """Three states in a row, one action, done on arrival in the last."""
    tables = np.array([[1], [2], [2]]), np.full((3, 1), reward, F), np.array([[0.0], [1.0], [1.0]], F)
    return tuple(t[None] for t in tables), tables + (0,)


def test_counts_of_steps():
    world, task = corridor()
    h = hyper(1, train_episodes=4, test_episodes=3)
    result = both("ql", h, world, task, "real", 50, 1e9, True, np.array([1]))
    assert result.train_steps == 8 and result.episodes == 4 and result.updates == 8
    assert result.real_steps == 8 + 4 * 3 * 2 + 3 * 2  # training, a test after each episode, the final test
    assert both("ql", h, world, task, "se", 50, 1e9, False, np.array([1])).real_steps == 3 * 2
    np.testing.assert_array_equal(result.episode_length, [[2, 2, 2, 2]])
    np.testing.assert_array_equal(result.episode_return, [[-2, -2, -2, -2]])
    np.testing.assert_array_equal(result.test_return, [[-2, -2, -2]])


def test_the_step_budget_ends_training_within_an_episode():
    world, task = corridor()
    h = hyper(3, train_episodes=10)
    h["train_steps"][:] = [5, 6, 0]
    result = both("sarsa_cb", h, world, task, "real", 50, 1e9, False, np.arange(3))
    assert result.train_steps.tolist() == [5, 6, 20] and result.episodes.tolist() == [3, 3, 10]
    np.testing.assert_array_equal(result.episode_length[0, :4], [2, 2, 1, 0])
    assert result.episode_return[0, 2] == -1 and np.isnan(result.episode_return[0, 3:]).all()


def test_early_out_rules():
    """Every episode returns -2: the average is solved, and unchanging, as soon as a rule may look at it."""
    world, task = corridor()
    gain, h = corridor(0.25), hyper(1, train_episodes=3)
    assert both("ql", h, *gain, "real", 50, 0.4999, False, np.array([0])).episodes == 1
    assert both("ql", h, *gain, "real", 50, 0.5, False, np.array([0])).episodes == 3  # the same 1e-9: just below 0.5

    def episodes(kind, test_each, solved=-1.9, **options):
        h = hyper(1, train_episodes=30, early_out_num=4, **options)
        return int(both("ql", h, world, task, kind, 50, solved, test_each, np.array([0])).episodes[0])

    # solved: one episode fills the average (the 1e-9 in its divisor makes -2 a little less bad, hence -2.0 passes)
    assert episodes("real", False, -2.0) == 1 and episodes("real", False) == 30
    assert episodes("real", False, -2.0, init_episodes=5) == 6
    assert episodes("se", True, -2.0) == 1 and episodes("se", True) == 30
    # SE: from episode index 4 on the last four are compared with those before them: -2 with the 1 episode before them
    assert episodes("se", False, early_out_virtual_diff=0.02) == 5
    assert episodes("se", False, early_out_virtual_diff=0.02, init_episodes=3) == 8
    assert episodes("se", False, early_out_virtual_diff=0.02, early_out_min_steps=21) == 11
    assert episodes("se", False, early_out_virtual_diff=0.0) == 30
    h = hyper(1, train_episodes=30, early_out_num=4)
    assert both("ql", h, *corridor(0.0), "se", 50, 0.0, False, np.array([0])).episodes == 5  # a return of 0 divides too


def test_exploration_decays_from_the_second_episode_on():
    """One state, two actions, of which the first pays 1 and the second -1."""
    world = np.zeros((1, 1, 2)), np.array([[[1.0, -1.0]]], F), np.zeros((1, 1, 2), F)
    task = tuple(t[0] for t in world) + (0,)
    h = hyper(1, train_episodes=3, eps_init=1.0, eps_min=0.0, eps_decay=0.0, gamma=0.0)
    returns = both("ql", h, world, task, "real", 100, 1e9, False, np.array([2])).episode_return[0]
    assert abs(returns[0]) < 50  # all random
    assert returns[1] == returns[2] == 100  # all greedy


def test_noisy_tests_are_those_of_every_learner():
    """On the bandit: the returns are those of ``agents/common/rollout.py`` for the same actions; the counters go on."""
    task, keys = Bandit(max_steps=7), np.array([3, -4])
    tables = task.next_state, task.reward, task.done
    h = hyper(2, train_episodes=3, test_episodes=4, alpha=0.5)
    world = tuple(t[None] for t in tables)
    result = both("ql", h, world, (*tables, 0), "real", 7, 1e9, True, keys, RewardNoise(1.0, 1.0))
    arm = torch.from_numpy(result.weights).argmax(1)

    def returns(stream, first):
        key = rng.fold(torch.from_numpy(keys), stream)
        policy = lambda observation, step: arm[:, None].expand(2, 4)  # noqa: E731
        return rollout.test_episodes(task, policy, key, torch.full((2,), first), 4, 1)[0].numpy()

    np.testing.assert_allclose(result.test_return, returns(rng.FINAL_TEST, 0), rtol=1e-6)
    assert len(np.unique(result.test_return)) == 8
    # the test after the last training episode: the same agent, other random numbers
    np.testing.assert_allclose(result.episode_return[:, 2], returns(rng.TEST, 8).mean(1), rtol=1e-6)


# ------------------------------------------------------------------------------------------------------- divergence


def test_a_world_that_is_not_finite_is_not_trained_in():
    world, task = corridor()
    world = tuple(np.repeat(t, 4, 0) for t in world)
    world[1][1, 2, 0], world[2][2, 0, 0] = np.nan, np.inf
    result = both("ql", hyper(4), world, task, "se", 50, 0.0, False, np.arange(4))
    assert result.status.tolist() == [OK, WORLD_DIVERGED, WORLD_DIVERGED, OK]
    assert result.train_steps[1] == 0 and np.isnan(result.test_return[1:3]).all()
    assert np.isfinite(result.test_return[[0, 3]]).all()


@pytest.mark.parametrize("algorithm", some_slow(ALGORITHMS, fast=FEW))
@pytest.mark.parametrize("published", [False, True])
def test_a_table_that_overflows_is_reported(algorithm, published):
    world = np.zeros((2, 1, 2)), np.array([[[3e38, 3e38]], [[1.0, 2.0]]], F), np.zeros((2, 1, 2), F)
    task = tuple(t[1] for t in world) + (0,)
    h = hyper(2, gamma=1.0, batch_size=2, published_sarsa=published)
    result = both(algorithm, h, world, task, "se", 10, 0.0, True, np.arange(2))
    assert result.status.tolist() == [AGENT_DIVERGED, OK]
    assert np.isnan(result.test_return[0]).all() and not np.isfinite(result.weights[0]).all()
    assert np.isfinite(result.test_return[1]).all() and result.episodes[0] < 100


# ---------------------------------------------------------------------------------------------- options and errors


def test_published_sarsa_draws_for_its_target_and_leaves_the_decisions_alone():
    """Always exploring: the same path through the world, other values."""
    options = [hyper(2, eps_init=1.0, eps_min=1.0, published_sarsa=on) for on in (False, True)]
    runs = [both("sarsa_cb", h, CLIFF_WORLD, CLIFF, "real", 50, 0.0, False, np.arange(2)) for h in options]
    np.testing.assert_array_equal(runs[0].episode_return, runs[1].episode_return)
    assert (runs[0].weights != runs[1].weights).any()


@pytest.mark.parametrize("change", [
    dict(algorithm="td3"), dict(kind="virtual"), dict(backend="cuda"),
    dict(world_tables=tuple(t[:, :, :3] for t in CLIFF_WORLD)), dict(keys=np.arange(3)),
    dict(world_tables=tuple(np.repeat(t, 3, 0) for t in CLIFF_WORLD)),
    dict(world_tables=(CLIFF_WORLD[0] + 1,) + CLIFF_WORLD[1:]), dict(task_tables=CLIFF[:3] + (48,)),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(change):
    arguments = dict(
        algorithm="ql",
        hyper=hyper(2),
        world_tables=CLIFF_WORLD,
        task_tables=CLIFF,
        kind="real",
        max_steps=50,
        solved_reward=0.0,
        test_each=False,
        keys=np.arange(2),
    )
    train_tabular(**arguments)
    with pytest.raises(ValueError):
        train_tabular(**{**arguments, **change})


# --------------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("algorithm", some_slow(("ql", "ql_cb"), fast=("ql",)))
@pytest.mark.parametrize("eps", [0.1, 0.01])
def test_q_learning_finds_the_shortest_path_along_the_cliff(algorithm, eps):
    """Published settings, 100 episodes; measured: 200 of 200 seeds."""
    h = hyper(20, eps_init=eps, eps_min=eps)
    result = train_tabular(algorithm, h, CLIFF_WORLD, CLIFF, "real", 50, 1e9, False, np.arange(20))
    assert (result.test_return[:, 0] == -12).sum() >= 18


@pytest.mark.slow
def test_sarsa_solves_cliff():
    """Published settings (gridworld file, stop when solved), 200 episodes; measured: 200 of 200 seeds at -16 or better.

    Not -12: with exploration the best policy keeps away from the edge, and that is what SARSA learns.
    """
    h = hyper(20, alpha=0.99, eps_init=0.01, eps_min=0.01, train_episodes=200)
    result = train_tabular("sarsa", h, CLIFF_WORLD, CLIFF, "rn", 50, TASK.solved_reward, True, np.arange(20))
    assert (result.test_return[:, 0] >= TASK.solved_reward).sum() >= 18
    assert result.episodes.max() < 200
