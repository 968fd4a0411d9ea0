"""Configurations that a test can afford: a gridworld's reward network (milliseconds), tiny CartPole SEs."""

from __future__ import annotations

import signal
from pathlib import Path

from envolve.outer.config.load import Config, load_config

ROOT = Path(__file__).resolve().parents[2]

GRIDWORLD_FILE = ROOT / "default_config_gridworld_reward_env_paper.yaml"  # published values do not change
CARTPOLE_FILE = ROOT / "default_config_cartpole_syn_env_paper.yaml"

CLIFF = (
    "env_name=Cliff", "agents.gtn.max_iterations=6", "agents.gtn.num_workers=4", "agents.gtn.chunk_size=5",
    "agents.gtn.comparison_agents=3", "agents.ql.train_episodes=20",
)  # fmt: skip
CARTPOLE = (
    "agents.gtn.max_iterations=3", "agents.gtn.num_workers=3", "agents.gtn.num_orig_evals=2", "agents.gtn.chunk_size=3",
    "agents.gtn.comparison_agents=0", "agents.gtn.agent_name=DDQN", "agents.gtn.estimator=antithetic",
    "agents.gtn.noise_std=0.05", "agents.gtn.step_size=0.02", "agents.gtn.common_random_numbers=true",
    "agents.gtn.quit_when_solved=true", "agents.ddqn.init_episodes=0", "agents.ddqn.train_steps=60",
    "agents.ddqn.early_out_min_steps=60", "agents.ddqn.test_episodes=2", "agents.ddqn.batch_size=8",
    "agents.ddqn.hidden_size=8", "envs.CartPole-v0.hidden_size=8",
)  # fmt: skip


def cliff(*overrides: str) -> Config:
    """An additive potential RN on Cliff with Q-learning: 12 agents per generation in 3 chunks."""
    return load_config(GRIDWORLD_FILE, [*CLIFF, *overrides])


def cartpole(*overrides: str) -> Config:
    """A CartPole SE with tiny DDQN agents."""
    return load_config(CARTPOLE_FILE, [*CARTPOLE, *overrides])


def default_sigint() -> None:
    """For a process that is to be interrupted: a shell in the background passes on that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
