"""CartPole and Acrobot against Gymnasium, over random states and actions."""

from __future__ import annotations

import math
import warnings

import gymnasium
import numpy as np
import pytest
import torch

from envs.task import make_task

CASES = {  # ranges wide enough to cross every limit: track ends, fallen poles, wrapped angles, clipped velocities
    "CartPole-v0": (2.6, 4.0, 0.25, 4.0),
    "Acrobot-v1": (math.pi, math.pi, 4 * math.pi, 9 * math.pi),
}
COUNT = 3000


def gym_env(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # v0 is "out of date"
        return gymnasium.make(name).unwrapped


@pytest.mark.parametrize("name", sorted(CASES))
def test_step_equals_gymnasium(name):
    task, env, rng = make_task(name), gym_env(name), np.random.default_rng(0)
    states = rng.uniform(-1, 1, (COUNT, 4)) * CASES[name]
    actions = rng.integers(task.num_actions, size=COUNT)
    wanted = []
    for state, action in zip(states, actions):
        env.reset()
        env.state = state.copy()
        obs, reward, terminated, _, _ = env.step(action)
        wanted.append((np.array(env.state), obs, reward, terminated))
    state, reward, terminated = task.step(torch.tensor(states).view(30, 100, 4), torch.tensor(actions).view(30, 100))
    gym_state, gym_obs, gym_reward, gym_terminated = (np.array(column) for column in zip(*wanted))

    assert state.dtype == torch.float64 and reward.dtype == torch.float32 and terminated.dtype == torch.bool
    np.testing.assert_allclose(state.reshape(COUNT, 4).numpy(), gym_state, rtol=0, atol=1e-12)
    np.testing.assert_allclose(task.observe(state).reshape(COUNT, -1).numpy(), gym_obs, rtol=2e-7, atol=1e-12)
    np.testing.assert_array_equal(reward.flatten().numpy(), gym_reward.astype(np.float32))
    np.testing.assert_array_equal(terminated.flatten().numpy(), gym_terminated)
    assert 50 < gym_terminated.sum() < COUNT - 50, "the cases must hold both outcomes"


@pytest.mark.parametrize("name", sorted(CASES))
def test_reset_equals_gymnasium_for_the_same_draws(name):
    task, env = make_task(name), gym_env(name)
    for seed in range(20):
        gym_obs, _ = env.reset(seed=seed)
        u = torch.tensor(np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).random(4)).view(1, 1, 4)
        np.testing.assert_allclose(task.observe(task.reset(u)).flatten().numpy(), gym_obs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("name", "limit"), [("CartPole-v0", 0.05), ("Acrobot-v1", 0.1)])
def test_reset_bounds(name, limit):
    task = make_task(name)
    ends = torch.stack((torch.zeros(4), torch.full((4,), 1 - 2.0**-24))).view(2, 1, 4)
    state = task.reset(ends)
    assert state.dtype == torch.float64
    np.testing.assert_allclose(state[0].numpy(), -limit)
    np.testing.assert_allclose(state[1].numpy(), limit, rtol=1e-6)
    assert (state[1] < limit).all()


@pytest.mark.parametrize("name", sorted(CASES))
def test_observation_bounds_equal_gymnasium(name):
    low, high = make_task(name).observation_bounds()
    space = gym_env(name).observation_space
    np.testing.assert_array_equal(np.float32(low), space.low)
    np.testing.assert_array_equal(np.float32(high), space.high)


def test_limits_and_solved_reward():
    cartpole, acrobot = make_task("CartPole-v0"), make_task("Acrobot-v1", max_steps=7, solved_reward=-50)
    assert (cartpole.max_steps, cartpole.solved_reward) == (200, 195.0)
    assert (acrobot.max_steps, acrobot.solved_reward) == (7, -50.0)


def test_unknown_task_names_the_nearest():
    with pytest.raises(KeyError, match="nearest: 'CartPole-v0'"):
        make_task("CartPole-v1")
