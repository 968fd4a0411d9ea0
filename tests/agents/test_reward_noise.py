"""Random rewards while agents train: a bandit's logged returns are its arms' means plus the draws of their steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from envolve.agents.common.sections import DDQNSection, PPOSection
from envolve.agents.train import train
from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task

KEYS, MAX_STEPS, EPISODES = np.array([3, 8]), 7, 4


def logged(name, learner, kind="real", backend="torch", **env):
    """Returns of the training episodes [2, EPISODES]."""
    task, section = make_task("Bandit", max_steps=MAX_STEPS), EnvSection(hidden_size=4, **env)
    result = train(name, learner, None, task, kind, section, torch.zeros(2, 13), KEYS, backend=backend)
    assert (result.train_steps == MAX_STEPS * EPISODES).all()
    return result.episode_return


def noise(counters):
    """Sums of the draws of each episode, float32 [2, EPISODES]; counters: int64 [EPISODES, MAX_STEPS]."""
    key = rng.fold(torch.as_tensor(KEYS), rng.REWARD)
    return rng.normal(key[:, None, None], counters).sum(-1).numpy()


def is_sum_of_means(x):
    """Means are multiples of 0.05."""
    return np.abs(x * 20 - np.round(x * 20)).max() < 1e-4


@pytest.mark.parametrize("skip", [1, 3])
@pytest.mark.parametrize("kind", ["real", "rn"])
@pytest.mark.parametrize("backend", ["torch", "compiled"])
def test_off_policy(backend, kind, skip):
    learner = DDQNSection(
        train_episodes=EPISODES,
        init_episodes=1,
        hidden_size=4,
        hidden_layer=1,
        batch_size=4,
        eps_init=1.0,
        test_episodes=1,
        same_action_num=skip,
    )
    steps = torch.arange(EPISODES * MAX_STEPS).view(EPISODES, MAX_STEPS)  # environment steps before this one
    returns = logged("ddqn", learner, kind, backend)
    assert is_sum_of_means(returns - noise(steps)) and not is_sum_of_means(returns)


@pytest.mark.parametrize("skip", [1, 7])
@pytest.mark.parametrize("backend", ["torch", "compiled"])
def test_ppo(backend, skip):
    learner = PPOSection(
        train_episodes=EPISODES,
        train_steps=EPISODES * MAX_STEPS,
        rollout_steps=MAX_STEPS // skip * 2,
        ppo_epochs=1,
        hidden_size=4,
        test_episodes=1,
        same_action_num=skip,
    )
    steps = torch.arange(EPISODES * MAX_STEPS).view(EPISODES, MAX_STEPS)
    returns = logged("ppo", learner, backend=backend)
    assert is_sum_of_means(returns - noise(steps)) and not is_sum_of_means(returns)
