"""PPO with the human's shapers learns the physics tasks: a stated score within stated steps.

Measured with seeds 0, 1, 2 (docs/results.md): HalfCheetah 3.95, 7.41, 3.12 m/s after 1 M steps; Ant 1.36, 2.18, 2.01
m/s and ANYmal -0.39, -0.35, -0.32 after 2 M; Stable-Baselines3 with the same settings 5.87 and 7.13, 0.01, -1.21.
A cheetah that does not move scores 0, an ANYmal that stands still -1.64. About eight minutes on one core.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from agents.shaped import make_envs, make_learner, train_shaped
from agents.shaped_ppo import defaults
from envs.shaping import Candidate

SEEDS, NUM_ENVS = 2, 64


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "steps", "least"), [("HalfCheetah", 1_000_000, 2.5), ("Ant", 2_000_000, 1.0), ("Anymal", 2_000_000, -0.6)]
)
def test_ppo_learns_with_the_humans_shapers(task: str, steps: int, least: float) -> None:
    threads, section = len(os.sched_getaffinity(0)), defaults()
    envs = make_envs(task, [Candidate("human")] * SEEDS, NUM_ENVS, list(range(SEEDS)), threads=threads)
    learner = make_learner("ppo", envs, section, np.arange(SEEDS), "auto", threads)
    result = train_shaped(envs, learner, -(-steps // (NUM_ENVS * section.rollout_steps)))
    print(f"{task}: {result.score.round(3).tolist()} after {result.steps:,} steps")
    assert (result.score >= least).all(), result.score
