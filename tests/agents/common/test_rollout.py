"""Steps with frame skip and test episodes: continuous actions, and rewards with noise, against loops written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.agents.common import rollout
from envolve.core import rng
from envolve.envs.task import make_task
from envolve.envs.worlds.world import RealTask


@pytest.mark.parametrize("name", ["Pendulum-v0", "MountainCarContinuous-v0", "CartPole-v0"])
def test_repeat_is_that_many_steps(name):
    task, generator = make_task(name, max_steps=5), torch.Generator().manual_seed(0)
    world, P, N, skip = RealTask(task, 3), 3, 2, 4
    state = world.reset(torch.rand(P, N, task.reset_uniforms, generator=generator))
    action = torch.randint(2, (P, N), generator=generator)
    if task.action_size:
        action = torch.rand(P, N, task.action_size, generator=generator) * 2 - 1
    t = torch.tensor([[0, 1], [2, 3], [4, 0]])  # those from 2 on meet the time limit before four steps are over
    got, reward, done, failed, after, over = rollout.repeat(world, state, action, t, skip, task.max_steps)
    for p in range(P):
        for n in range(N):
            s, total = state[p : p + 1, n : n + 1], 0.0
            for _ in range(min(skip, task.max_steps - int(t[p, n]))):
                s, r, _ = task.step(s, action[p : p + 1, n : n + 1])
                total += r.item()
            torch.testing.assert_close(got[p, n], s[0, 0])
            assert reward[p, n].item() == pytest.approx(total, rel=1e-5)
    assert torch.equal(after, (t + skip).clamp(max=5)) and torch.equal(over, after == 5)
    assert not done.any() and not failed.any()


def test_test_episodes_with_continuous_actions():
    task, key, first = make_task("Pendulum-v0", max_steps=7), torch.tensor([5, 6]), torch.tensor([0, 3])
    gain = torch.tensor([1.0, -0.5]).view(2, 1, 1)
    policy = lambda obs, step: (gain * obs[..., 1:2]).clamp(-2, 2)  # noqa: E731
    returns, steps = rollout.test_episodes(task, policy, key, first, 3, 1)
    assert returns.shape == (2, 3) and steps.tolist() == [21, 21]
    for p in range(2):
        for j in range(3):
            state = task.reset(rng.uniform(key[p], (first[p] + j) * 2 + torch.arange(2)).view(1, 1, 2))
            total = 0.0
            for _ in range(7):
                action = (gain[p] * task.observe(state)[..., 1:2]).clamp(-2, 2)
                state, reward, _ = task.step(state, action)
                total += reward.item()
            assert returns[p, j].item() == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("skip", [1, 3])
def test_test_episodes_with_a_random_reward(skip):
    """Step t of test episode j carries draw j * max_steps + t, with any frame skip; members draw their own."""
    task, key, first = make_task("Bandit", max_steps=8), torch.tensor([5, 6]), torch.tensor([4, 0])
    arm = torch.tensor([13, 2])
    policy = lambda obs, step: arm[:, None].expand(obs.shape[:2])  # noqa: E731
    returns, _ = rollout.test_episodes(task, policy, key, first, 3, skip)
    for p in range(2):
        noise_key = rng.fold(key[p : p + 1], rng.REWARD)
        for j in range(3):
            draws = rng.normal(noise_key, (first[p] + j) * 8 + torch.arange(8))
            wanted = 8 * task.reward[0, arm[p]] + draws.sum().item()
            assert returns[p, j].item() == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_array_equal(rollout.test_episodes(task, policy, key, first + 1, 2, skip)[0], returns[:, 1:])


@pytest.mark.parametrize("skip", [1, 3])
def test_episodes_that_are_over_cost_no_simulation(skip, monkeypatch):
    task, key = make_task("Hopper-v5", max_steps=120), torch.tensor([5, 6, 7])
    gain = torch.tensor([0.0, 0.3, -1.0]).view(3, 1, 1)
    policy = lambda obs, step: (gain * obs[..., 5:8]).clamp(-1, 1)  # noqa: E731
    calls, advance = [], type(task).advance

    def counted(self, state, control):
        calls.append(state[..., 0].numel())
        return advance(self, state, control)

    monkeypatch.setattr(type(task), "advance", counted)
    returns, steps = rollout.test_episodes(task, policy, key, torch.zeros_like(key), 4, skip)
    spent, all_of_them = sum(calls), len(calls) * 12
    monkeypatch.setattr(type(task), "costly", False)
    wanted, wanted_steps = rollout.test_episodes(task, policy, key, torch.zeros_like(key), 4, skip)
    assert torch.equal(returns, wanted) and torch.equal(steps, wanted_steps)
    assert steps.min() < 0.8 * steps.max(), "then there is nothing to leave out"
    assert spent < 0.8 * all_of_them
    if skip == 1:
        assert spent == steps.sum()
