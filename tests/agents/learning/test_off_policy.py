"""Does the learner learn? DDQN on the real CartPole-v0 with the settings that were published for it (slow).

Expectations: the paper's agents on the real task (https://arxiv.org/abs/2202.02790; 400 that draw lr, batch and net
sizes anew) took 16,888 +- 24,925 training steps and returned 190.7 in the test; 11,526 steps with fixed ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from envolve.agents.common.sections import DDQNSection
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task

CONFIG = yaml.safe_load((Path(__file__).parents[3] / "default_config_cartpole_syn_env_paper.yaml").read_text())
PUBLISHED = DDQNSection(**CONFIG["agents"]["ddqn"])
ENV = EnvSection(**CONFIG["envs"]["CartPole-v0"])
NEVER = 1e9  # a solved_reward out of reach: training lasts for its budget

pytestmark = pytest.mark.slow


def train_on_cartpole(members, section=PUBLISHED, solved_reward=ENV.solved_reward):
    task = make_task("CartPole-v0", ENV.max_steps, solved_reward)
    return train("ddqn", section, None, task, "real", ENV, torch.zeros(members, 1), np.arange(members))


def test_ddqn_solves_cartpole():
    """Measured: 19 of 20 seeds, return 198.6, 16,246 +- 23,185 steps, median 9,480."""
    result = train_on_cartpole(10)
    returns = result.test_return.mean(1)
    assert (returns >= 195).sum() >= 8
    assert 5_000 < np.median(result.train_steps) < 17_000
    assert (result.episodes < PUBLISHED.train_episodes).sum() >= 8, "most stop because the task is solved"


def test_learns_no_worse_than_stable_baselines3_at_equal_steps():
    """10,000 steps, the same hyperparameters; measured: 179 (10 seeds) and 144 (its DQN, neither double nor with our
    loss: 119, 198, 125, 134). A return after so few steps varies by some 45 from seed to seed."""
    sb3 = pytest.importorskip("stable_baselines3")
    gymnasium = pytest.importorskip("gymnasium")
    steps, h = 10_000, replace(PUBLISHED, train_steps=10_000, bootstrap_time_limit=True)
    ours = train_on_cartpole(10, h, solved_reward=NEVER)
    assert (ours.train_steps == steps).all()

    theirs = []
    for seed in range(3):
        env = gymnasium.make("CartPole-v1", max_episode_steps=ENV.max_steps)  # the dynamics of v0, and its time limit
        model = sb3.DQN(
            "MlpPolicy",
            env,
            learning_rate=h.lr,
            buffer_size=h.rb_size,
            learning_starts=30,
            batch_size=h.batch_size,
            tau=h.tau,
            gamma=h.gamma,
            train_freq=1,
            gradient_steps=1,
            target_update_interval=1,
            exploration_fraction=0.5,
            exploration_initial_eps=h.eps_init,
            exploration_final_eps=h.eps_min,
            policy_kwargs={"net_arch": [h.hidden_size], "activation_fn": torch.nn.Tanh},
            seed=seed,
            device="cpu",
        )
        model.learn(steps)
        mean, _ = sb3.common.evaluation.evaluate_policy(model, model.get_env(), n_eval_episodes=10)
        theirs.append(mean)
    assert np.mean(theirs) > 60, "the comparison is with an agent that learns"
    assert ours.test_return.mean() > np.mean(theirs) - 30
