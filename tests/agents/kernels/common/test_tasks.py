"""The compiled twins of the tasks: against the torch tasks from random states, and over whole episodes of Gymnasium."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.agents.common.rollout import reset_uniforms
from envolve.agents.kernels.common import tasks
from envolve.core import rng
from envolve.envs.task import TASKS, make_task
from tests.envs.classic.test_tasks import CASES, gym_env, random_actions

COUNT = 2000
U = np.uint64


def kernel_step(task, s, action):
    """Advance s in place -> reward, terminated."""
    code = tasks.TASK_CODES[task.name]
    if task.num_actions:
        return tasks.step(code, s, int(action))
    return tasks.step_continuous(code, s, action)


def padded(state):
    return np.concatenate([np.asarray(state, np.float64), np.full(tasks.STATE_SIZE - len(state), np.nan)])


def test_every_code_is_a_task_and_draws_what_the_task_draws():
    assert sorted(CASES) == sorted(tasks.TASK_CODES) and len(tasks.RESET_UNIFORMS) == len(tasks.TASK_CODES)
    for name, code in tasks.TASK_CODES.items():
        assert TASKS[name].reset_uniforms == tasks.reset_uniforms(code), name


@pytest.mark.parametrize("name", sorted(CASES))
def test_reset_and_observation(name):
    task, code = make_task(name), tasks.TASK_CODES[name]
    key, number = torch.tensor([99]), torch.arange(50)[None]
    wanted = task.reset(reset_uniforms(key, number * task.reset_uniforms, task.reset_uniforms))
    observed = task.observe(wanted)[0].numpy()
    s, obs = np.full(tasks.STATE_SIZE, np.nan), np.empty(task.observation_size, np.float32)
    for i in range(50):
        tasks.reset(code, s, U(99), U(i * task.reset_uniforms))
        np.testing.assert_allclose(s[: wanted.shape[-1]], wanted[0, i].numpy(), rtol=0, atol=1e-15)
        tasks.observe(code, s, obs)
        np.testing.assert_allclose(obs, observed[i], rtol=1e-7)


@pytest.mark.parametrize("name", sorted(CASES))
def test_steps_from_random_states(name):
    task, generator = make_task(name), np.random.default_rng(3)
    dtype = task.reset(torch.zeros(1, 1, task.reset_uniforms)).dtype
    states = torch.tensor(generator.uniform(-1, 1, (COUNT, len(CASES[name]))) * CASES[name]).to(dtype)
    actions = random_actions(task, generator, COUNT)
    state, reward, terminated = task.step(states[None], torch.tensor(actions)[None])
    ends = 0
    for i in range(COUNT):
        s = padded(states[i])
        got_reward, got_terminated = kernel_step(task, s, actions[i])
        wanted = state[0, i].double().numpy()
        if name == "MountainCarContinuous-v0":  # all but the cosine is float32: the last bits of cosines vanish
            np.testing.assert_array_equal(s[:2], wanted)
        np.testing.assert_allclose(s[: len(wanted)], wanted, rtol=0, atol=3e-14)
        np.testing.assert_allclose(got_reward, reward[0, i].item(), rtol=1.2e-7)
        assert got_terminated == terminated[0, i].item()
        ends += got_terminated
    assert ends > 50 or name == "Pendulum-v0"


@pytest.mark.parametrize("name", sorted(CASES))
def test_episodes_equal_gymnasium(name):
    task, env, generator = make_task(name), gym_env(name), np.random.default_rng(5)
    s = np.full(tasks.STATE_SIZE, np.nan)
    for episode in range(3):
        env.reset(seed=0)
        tasks.reset(tasks.TASK_CODES[name], s, U(7), U(episode * task.reset_uniforms))
        env.state = s[: len(CASES[name])].copy()
        if name == "MountainCarContinuous-v0":
            env.state = env.state.astype(np.float32)
        for _ in range(100):
            action = random_actions(task, generator, 1)[0]
            action = action if task.num_actions else action.clip(-task.max_action, task.max_action)
            reward, terminated = kernel_step(task, s, action)
            _, gym_reward, gym_terminated, _, _ = env.step(action)
            np.testing.assert_allclose(s[: len(CASES[name])], env.state, rtol=0, atol=1e-9)
            np.testing.assert_allclose(reward, np.float32(gym_reward), rtol=2e-7)
            assert terminated == gym_terminated
            if terminated:
                break


@pytest.mark.parametrize("name", ["MountainCarContinuous-v0", "Pendulum-v0"])
def test_an_action_that_is_nan_is_not_lost(name):
    """A diverged agent must be seen: clipping keeps NaN, as in torch."""
    task, action = make_task(name), np.full(1, np.nan, np.float32)
    s = padded([0.1, 0.01])
    kernel_step(task, s, action)
    state, _, _ = task.step(task.reset(torch.zeros(1, 1, task.reset_uniforms)), torch.from_numpy(action)[None, None])
    assert np.isnan(s[1]) and state[0, 0, 1].isnan()


def test_noise_stream_is_the_kernels_too():
    from envolve.agents.kernels.common import rng as kernel_rng

    key = rng.fold(torch.tensor([3]), rng.REWARD)
    wanted = rng.normal(key, torch.arange(20)).numpy()
    folded = kernel_rng.fold(U(3), U(rng.REWARD))
    np.testing.assert_allclose([kernel_rng.normal(folded, U(i)) for i in range(20)], wanted, rtol=1e-6)
