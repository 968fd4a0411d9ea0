"""The classic-control tasks against Gymnasium: random states and actions, resets, and whole episodes."""

from __future__ import annotations

import math
import warnings

import gymnasium
import numpy as np
import pytest
import torch

from envolve.envs.task import make_task

CASES = {  # wide enough to cross every limit: track ends, fallen poles, wrapped angles, clipped velocities, goals
    "CartPole-v0": (2.6, 4.0, 0.25, 4.0),
    "Acrobot-v1": (math.pi, math.pi, 4 * math.pi, 9 * math.pi),
    "MountainCar-v0": (1.2, 0.07),
    "MountainCarContinuous-v0": (1.2, 0.07),
    "Pendulum-v0": (3 * math.pi, 8.0),
}
GYM_NAMES = {"Pendulum-v0": "Pendulum-v1"}  # v0 is gone; the same dynamics
COUNT = 3000


def gym_env(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # v0 is "out of date"
        return gymnasium.make(GYM_NAMES.get(name, name)).unwrapped


def random_actions(task, rng, count):
    """Actions [count] or float32 [count, A], a few of them beyond what the task takes."""
    if task.num_actions:
        return rng.integers(task.num_actions, size=count)
    return (rng.uniform(-1.2, 1.2, (count, task.action_size)) * task.max_action).astype(np.float32)


@pytest.mark.parametrize("name", sorted(CASES))
def test_step_equals_gymnasium(name):
    task, env, rng = make_task(name), gym_env(name), np.random.default_rng(0)
    dtype = task.reset(torch.zeros(1, 1, task.reset_uniforms)).dtype
    size = len(CASES[name])
    states = (rng.uniform(-1, 1, (COUNT, size)) * CASES[name]).astype(str(dtype)[6:])
    if size == 2 and not name.startswith("Pendulum"):
        states[:, 0] = np.clip(states[:, 0], -1.2, 0.6)  # the road, with many cars at its ends
    actions = random_actions(task, rng, COUNT)
    wanted = []
    for state, action in zip(states, actions):
        env.reset()
        env.state = state.copy()
        obs, reward, terminated, _, _ = env.step(action)
        wanted.append((np.array(env.state), obs, reward, terminated))
    batch = torch.tensor(actions).view(30, 100, *actions.shape[1:])
    state, reward, terminated = task.step(torch.tensor(states).view(30, 100, size), batch)
    gym_state, gym_obs, gym_reward, gym_terminated = (np.array(column) for column in zip(*wanted))

    assert state.dtype == dtype and reward.dtype == torch.float32 and terminated.dtype == torch.bool
    within = np.ones(COUNT, np.bool_) if task.num_actions else (np.abs(actions) <= task.max_action).all(1)
    error = np.abs(state.reshape(COUNT, size).numpy() - gym_state)
    assert error[within].max() < 1e-12
    assert error.max() < 1e-8, "a clipped action is a Python float in Gymnasium, which a float32 state feels"
    np.testing.assert_allclose(task.observe(state).reshape(COUNT, -1).numpy(), gym_obs, rtol=3e-7, atol=1e-8)
    np.testing.assert_allclose(task.observe(state).reshape(COUNT, -1).numpy()[within], gym_obs[within], 2e-7, 1e-12)
    np.testing.assert_allclose(reward.flatten().numpy(), gym_reward.astype(np.float32), rtol=2e-7, atol=0)
    np.testing.assert_array_equal(terminated.flatten().numpy(), gym_terminated)
    if name == "Pendulum-v0":
        assert not gym_terminated.any()
    else:
        assert 50 < gym_terminated.sum() < COUNT - 50, "the cases must hold both outcomes"


@pytest.mark.parametrize("name", sorted(CASES))
def test_reset_equals_gymnasium_for_the_same_draws(name):
    task, env = make_task(name), gym_env(name)
    for seed in range(20):
        gym_obs, _ = env.reset(seed=seed)
        draws = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).random(task.reset_uniforms)
        obs = task.observe(task.reset(torch.tensor(draws).view(1, 1, -1)))
        assert obs.dtype == torch.float32
        np.testing.assert_allclose(obs.flatten().numpy(), gym_obs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("CartPole-v0", [-0.05] * 4, [0.05] * 4),
        ("Acrobot-v1", [-0.1] * 4, [0.1] * 4),
        ("MountainCar-v0", [-0.6, 0.0], [-0.4, 0.0]),
        ("MountainCarContinuous-v0", [-0.6, 0.0], [-0.4, 0.0]),
        ("Pendulum-v0", [-math.pi, -1.0], [math.pi, 1.0]),
    ],
)
def test_reset_bounds(name, low, high):
    task = make_task(name)
    ends = torch.stack((torch.zeros(task.reset_uniforms), torch.full((task.reset_uniforms,), 1 - 2.0**-24)))
    state = task.reset(ends.unsqueeze(1))[:, 0].numpy()
    np.testing.assert_allclose(state[0], low, rtol=1e-6)
    np.testing.assert_allclose(state[1], high, rtol=1e-6)
    assert (state[1] <= np.array(high, state.dtype)).all()


@pytest.mark.parametrize("name", sorted(CASES))
def test_spaces_equal_gymnasium(name):
    task, env = make_task(name), gym_env(name)
    low, high = task.observation_bounds()
    np.testing.assert_array_equal(np.float32(low), env.observation_space.low)
    np.testing.assert_array_equal(np.float32(high), env.observation_space.high)
    if task.num_actions:
        assert env.action_space.n == task.num_actions == task.action_inputs and task.action_size == 0
    else:
        assert env.action_space == gymnasium.spaces.Box(-task.max_action, task.max_action, (task.action_size,))
        assert task.num_actions == 0 and task.action_inputs == task.action_size


def pumping(task, obs):
    """Push the way the car rolls: a policy that reaches the goal. obs: [F]."""
    sign = 1 if obs[1] >= 0 else -1
    return 1 + sign if task.num_actions else np.array([sign], np.float32)


@pytest.mark.parametrize("name", ["MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v0"])
def test_whole_episodes_equal_gymnasium(name):
    """To the bit for MountainCarContinuous, whose cosine is rounded to float32; else as far as cosines agree."""
    task, env, rng = make_task(name), gym_env(name), np.random.default_rng(1)
    goals = 0
    for seed in range(5):
        env.reset(seed=seed)
        draws = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).random(task.reset_uniforms)
        state = task.reset(torch.tensor(draws).view(1, 1, -1))
        env.state = state.numpy()[0, 0].copy()  # float32 where ours is
        for _ in range(task.max_steps):
            obs = task.observe(state)[0, 0].numpy()
            action = pumping(task, obs) if "Car" in name and seed < 4 else random_actions(task, rng, 1)[0]
            action = action if task.num_actions else action.clip(-task.max_action, task.max_action)
            state, reward, terminated = task.step(state, torch.as_tensor(action).view(1, 1, *np.shape(action)))
            _, gym_reward, gym_terminated, _, _ = env.step(action)
            got, wanted = state.numpy()[0, 0], np.array(env.state)
            if name == "MountainCarContinuous-v0":
                np.testing.assert_array_equal(got, wanted)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)
            assert terminated.item() == gym_terminated
            np.testing.assert_allclose(reward.item(), np.float32(gym_reward), rtol=2e-7)
            if gym_terminated:
                goals += 1
                break
    assert goals == (4 if "Car" in name else 0)


def test_limits_and_solved_reward():
    wanted = {
        "CartPole-v0": (200, 195.0), "Acrobot-v1": (500, -100.0), "MountainCar-v0": (200, -110.0),
        "MountainCarContinuous-v0": (999, 90.0), "Pendulum-v0": (200, -300.0), "Bandit": (50, 49.0),
    }  # fmt: skip
    for name, (max_steps, solved_reward) in wanted.items():
        task = make_task(name)
        assert (task.max_steps, task.solved_reward) == (max_steps, solved_reward), name
    acrobot = make_task("Acrobot-v1", max_steps=7, solved_reward=-50)
    assert (acrobot.max_steps, acrobot.solved_reward) == (7, -50.0)


def test_unknown_task_names_the_nearest():
    with pytest.raises(KeyError, match="nearest: 'CartPole-v0'"):
        make_task("CartPole-v1")
