"""Exported worlds: Gymnasium's own checker, batched against single, the real task against Gymnasium, SB3."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from envolve.envs.worlds.export import WorldEnv, WorldVectorEnv, load_world, load_world_vec
from envolve.envs.worlds.file import save_world
from envolve.envs.worlds.synthetic import SyntheticEnv
from envolve.envs.worlds.world import RealTask, world_size
from tests.envs.worlds.test_file import make_config, make_flat

KINDS = ("real", "se", "rn")


def saved(tmp_path, kind, name="CartPole-v0", **section):
    config = make_config(name, reward_env_type=2, **section)
    save_world(str(tmp_path / "model.pt"), kind, name, make_flat(kind, config), config, budget=1000)
    return str(tmp_path / "model.pt")


def make(tmp_path, kind, name):
    return WorldEnv(RealTask(make_task(name), 1)) if kind == "real" else load_world(saved(tmp_path, kind, name))


def random_actions(space, rng, count):
    """[count] integers, or float32 [count, A] within the bounds of a Box."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=count)
    return rng.uniform(space.low, space.high, (count, *space.shape)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["CartPole-v0", "Acrobot-v1", "Cliff", "MountainCarContinuous-v0", "Pendulum-v0"])
def test_env_checker(tmp_path, kind, name):
    env = make(tmp_path, kind, name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env)
    known = ["not having a spec"]
    if name == "CartPole-v0" and kind != "se":  # Gymnasium's own CartPole has unbounded velocities too
        known += ["value is -infinity", "value is infinity"]
    if name == "Pendulum-v0":  # Gymnasium's own action space is this one too
        known += ["a symmetric and normalized space"]
    messages = [str(w.message) for w in caught]
    assert not [message for message in messages if not any(text in message for text in known)]


@pytest.mark.parametrize(
    "name", ["CartPole-v0", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v0"]
)
def test_the_real_task_is_gymnasiums_episode_by_episode(name):
    env = WorldEnv(RealTask(make_task(name), 1), max_steps=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gym = gymnasium.make(name.replace("Pendulum-v0", "Pendulum-v1"), max_episode_steps=60)
    assert env.action_space == gym.action_space
    rng = np.random.default_rng(0)
    for seed in range(5):
        got, wanted = env.reset(seed=seed)[0], gym.reset(seed=seed)[0]
        np.testing.assert_allclose(got, wanted, atol=1e-7)
        over = False
        while not over:
            action = random_actions(env.action_space, rng, 1)[0]
            got, wanted = env.step(action), gym.step(action)
            np.testing.assert_allclose(got[0], wanted[0], atol=1e-4)
            np.testing.assert_allclose(got[1], wanted[1], rtol=1e-4)
            assert got[2:] == wanted[2:]
            over = got[2] or got[3]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("se", "CartPole-v0"), ("se", "Acrobot-v1"), ("se", "Cliff"), ("se", "Pendulum-v0"), ("rn", "Cliff"),
        ("rn", "MountainCarContinuous-v0"), ("real", "CartPole-v0"), ("real", "Bandit"),
    ],
)  # fmt: skip
def test_vector_env_equals_single_envs(tmp_path, kind, name):
    count, steps = 5, 150
    if kind == "real":
        vector = WorldVectorEnv(RealTask(make_task(name), 1), count, max_steps=12)
        singles = SyncVectorEnv([lambda: WorldEnv(RealTask(make_task(name), 1), max_steps=12)] * count)
    else:
        path = saved(tmp_path, kind, name, activation_fn="tanh")
        vector = load_world_vec(path, count, max_steps=12)
        singles = SyncVectorEnv([lambda: load_world(path, max_steps=12)] * count)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP is singles.metadata["autoreset_mode"]
    assert vector.observation_space == singles.observation_space and vector.action_space == singles.action_space
    rng, ends = np.random.default_rng(1), 0
    got, wanted = vector.reset(seed=11)[0], singles.reset(seed=11)[0]
    for t in range(steps):
        assert got.dtype == wanted.dtype and got in vector.observation_space
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
        if t == 70:  # a partial reset in the midst of episodes
            options = {"reset_mask": np.array([True, False, False, True, False])}
            got, wanted = (envs.reset(seed=5, options=dict(options))[0] for envs in (vector, singles))
            continue
        actions = random_actions(vector.single_action_space, rng, count)
        got, reward, terminated, truncated, _ = vector.step(actions)
        wanted, *rest, _ = singles.step(actions)
        np.testing.assert_allclose(reward, rest[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(terminated, rest[1])
        np.testing.assert_array_equal(truncated, rest[2])
        ends += (terminated | truncated).sum()
    assert ends >= count, "the case must reach the autoreset"


def test_vector_seeds():
    vector = WorldVectorEnv(RealTask(make_task("CartPole-v0"), 1), 3)
    first = vector.reset(seed=[4, 5, 6])[0]
    assert vector.np_random_seed == (4, 5, 6) and len(vector.np_random) == 3
    np.testing.assert_array_equal(first, vector.reset(seed=4)[0])
    assert not np.array_equal(first, vector.reset()[0]), "without a seed the generators go on"
    with pytest.raises(ValueError, match="2 seeds: expected 3"):
        vector.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="reset_mask"):
        vector.reset(options={"reset_mask": np.zeros(3, np.bool_)})


def test_observations_given_out_do_not_change_later():
    vector = WorldVectorEnv(RealTask(make_task("Cliff"), 1), 3)
    first, _ = vector.reset(seed=0)
    kept = first.copy()
    vector.step(np.array([3, 3, 3]))
    np.testing.assert_array_equal(first, kept)
    first[:] = 0
    assert vector.step(np.array([3, 3, 3]))[0].tolist() == [12, 12, 12]


def test_max_steps_and_gamma_of_the_file_and_of_the_caller(tmp_path):
    path = saved(tmp_path, "rn", "Cliff", max_steps=7)
    assert load_world(path).max_steps == 7 and load_world(path, max_steps=3).max_steps == 3
    assert load_world(path).world.gamma.item() == 0.75 and load_world(path, gamma=0.5).world.gamma.item() == 0.5
    env = load_world(path, max_steps=3)
    env.reset(seed=0)
    assert [env.step(3)[3] for _ in range(3)] == [False, False, True]


def test_wrong_use_is_named(tmp_path):
    path = saved(tmp_path, "se")
    env, vector = load_world(path), load_world_vec(path, 2)
    for call in (lambda: env.step(0), lambda: vector.step(np.array([0, 0]))):
        with pytest.raises(gymnasium.error.ResetNeeded):
            call()
    env.reset()
    vector.reset()
    with pytest.raises(ValueError, match="action 2"):
        env.step(2)
    with pytest.raises(ValueError, match="actions"):
        vector.step(np.array([0, 2]))
    with pytest.raises(ValueError, match="num_envs 0"):
        load_world_vec(path, 0)
    with pytest.raises(ValueError, match="2 members"):
        WorldEnv(RealTask(make_task("Cliff"), 2))


def test_continuous_actions_are_checked_and_cast(tmp_path):
    path = saved(tmp_path, "se", "Pendulum-v0")
    env, vector = load_world(path), load_world_vec(path, 2)
    env.reset(seed=0)
    vector.reset(seed=0)
    first = env.step(np.array([1.5]))[0]  # float64
    np.testing.assert_allclose(first, vector.step([[1.5], [-2]])[0][0], rtol=1e-5)
    for action in ([2.5], [np.nan], [0.0, 0.0], 0.0):
        with pytest.raises(ValueError, match="action .*: expected one of Box"):
            env.step(action)
    with pytest.raises(ValueError, match="actions .*: expected a sample of Box"):
        vector.step(np.zeros(2))


def test_a_random_reward_is_drawn_from_the_environments_generator():
    task = make_task("Bandit")
    env = WorldEnv(RealTask(task, 1))
    env.reset(seed=0)
    mean = task.reward[0, 13]
    rewards = np.array([env.step(13)[1] for _ in range(2000)])
    assert mean == 1.0 and abs(rewards.mean() - mean) < 4 / 2000**0.5 and abs(rewards.std() - 1) < 0.07
    env.reset(seed=0)
    assert [env.step(13)[1] for _ in range(5)] == rewards[:5].tolist()


def test_an_overflowing_world_says_so(tmp_path):
    task, section = load_world(saved(tmp_path, "se")).world.task, EnvSection(hidden_size=4)
    env = WorldEnv(SyntheticEnv(task, section, torch.full((1, world_size("se", task, section)), 1e30)))
    env.reset(seed=0)
    with pytest.raises(FloatingPointError, match="not finite"):
        env.step(0)


@pytest.mark.slow
def test_stable_baselines3_trains_unchanged(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    env = load_world(saved(tmp_path, "se"))
    sb3_check_env(env)
    model = sb3.DQN("MlpPolicy", env, learning_starts=100, buffer_size=2000, seed=0)
    before = [p.detach().clone() for p in model.q_net.parameters()]
    model.learn(1000)
    assert model.num_timesteps == 1000
    assert any(not torch.equal(a, b) for a, b in zip(before, model.q_net.parameters()))
