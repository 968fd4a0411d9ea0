"""Worlds and tasks whose observations are in units of the world's own contexts."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import envolve.worlds
from benchmarks.worlds import continuous_figure
from benchmarks.worlds import units as benchmark
from envolve.agents import peers
from envolve.envs.task import make_task
from envolve.envs.worlds import units as with_torch
from envolve.envs.worlds.file import read_world
from envolve.outer.config import problem
from envolve.outer.zoo.convert import zoo_bytes
from envolve.worlds import units
from envolve.worlds.env import own_units
from envolve.worlds.file import read_world as read_zoo

MODEL = continuous_figure.DATA / "half_cheetah" / "run-0" / "distilled.pt"
NAMES = ["Hopper-v5-bandit", "Pendulum-v1-bandit", "CartPole-v1-bandit", "CliffWalking-v1-bandit"]


def both(name: str) -> tuple[gymnasium.Env, gymnasium.Env]:
    return gymnasium.make(f"envolve/{name}"), gymnasium.make(f"envolve/{name}", normalised=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_contexts_and_rewards_in_other_units(name: str) -> None:
    (plain, other), own = both(name), units.units_of(envolve.worlds.open_world(name))
    plain.action_space.seed(0)
    seen = []
    for seed in range(300):
        observation = plain.reset(seed=seed)[0]
        seen.append(other.reset(seed=seed)[0])
        np.testing.assert_allclose(seen[-1], own.of(observation), rtol=1e-3, atol=1e-3)
        action = plain.action_space.sample()
        assert plain.step(action)[1] == other.step(action)[1]
    assert np.abs(np.mean(seen, 0)).max() < 0.7 and np.all(np.isin(np.std(seen, 0).round(), (0.0, 1.0)))
    check_env(other.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_task_has_the_units_of_its_world(name: str) -> None:
    plain, other = envolve.worlds.make_task(name), envolve.worlds.make_task(name, normalised=True)
    own = units.units_of(envolve.worlds.open_world(name))
    plain.action_space.seed(0)
    found, expected = other.reset(seed=4)[0], plain.reset(seed=4)[0]
    for _ in range(5):
        assert found.dtype == np.float32 and other.observation_space.contains(found)
        np.testing.assert_array_equal(found, own.of(expected))
        action = plain.action_space.sample()
        found, expected = other.step(action)[0], plain.step(action)[0]


def test_a_batch_is_single_environments_in_these_units() -> None:
    envs = gymnasium.make_vec("envolve/Hopper-v5-bandit", num_envs=3, autoreset_mode="SameStep", normalised=True)
    single = gymnasium.make("envolve/Hopper-v5-bandit", normalised=True)
    assert envs.single_observation_space == single.observation_space
    seen = envs.reset(seed=8)[0]
    for i in range(3):
        np.testing.assert_allclose(seen[i], single.reset(seed=8 + i)[0], rtol=1e-4, atol=1e-5)


def test_these_are_the_units_of_the_twin_with_torch(tmp_path: Path) -> None:
    found = read_world(str(MODEL))
    task, section = make_task(found.env_name), problem.env_section(found.config)
    theirs = with_torch.units_of(task, section, found.flat)
    path = tmp_path / "world.safetensors"
    path.write_bytes(zoo_bytes(found))
    own = units.units_of(read_zoo(path))
    np.testing.assert_allclose(own.mean, theirs.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(own.deviation, theirs.deviation, rtol=1e-4)
    x = np.random.default_rng(0).normal(0, 50, (100, len(own.mean)))
    np.testing.assert_allclose(own.of(x), benchmark.shown(torch.from_numpy(x), theirs), rtol=1e-3, atol=1e-3)


def test_vec_normalize_finds_these_units() -> None:
    pytest.importorskip("stable_baselines3")
    env = peers.shown(f"ppo{peers.NORMALISED}", gymnasium.make("envolve/Hopper-v5-bandit"))
    env.seed(0)
    env.reset()
    for _ in range(4000):
        env.step(np.zeros((1, 3)))
    own = units.units_of(envolve.worlds.open_world("Hopper-v5-bandit"))
    x = own.mean + np.random.default_rng(0).normal(0, 20, (100, 11)) * own.deviation
    np.testing.assert_allclose(env.normalize_obs(x), own.of(x), rtol=0.1, atol=0.1)


def test_what_is_far_from_the_rest_is_clipped() -> None:
    table = np.zeros((5000, 3), np.float32)
    table[0] = 1e4
    world = envolve.worlds.open_world("Pendulum-v1-bandit")
    world = world._replace(bandit=world.bandit._replace(source=table), mean=np.zeros(3), scale=np.ones(3))
    assert units.units_of(world).of(np.array([0.0, 1e4, -1e4])).tolist()[1:] == [units.CLIP, -units.CLIP]
    assert own_units(units.normalised(world), np.array([[0.0, 1e4, -1e4]]))[0, 1:].tolist() == [units.CLIP, -units.CLIP]
