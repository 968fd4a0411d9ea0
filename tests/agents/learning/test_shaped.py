"""PPO with the human's shapers learns the physics tasks: a stated score within stated steps.

Measured with seeds 0, 1, 2 (docs/results/shapers.md): HalfCheetah 3.95, 7.41, 3.12 m/s after 1 M steps; Ant 1.36, 2.18,
2.01 m/s and ANYmal -0.39, -0.35, -0.32 after 2 M; Stable-Baselines3 with the same settings 5.87 and 7.13, 0.01, -1.21.
A cheetah that does not move scores 0, an ANYmal that stands still -1.64. About eight minutes on one core.
"""

from __future__ import annotations

import os

import pytest

from envolve.agents.shaped.ppo import defaults
from tests.agents.humans import train_humans

SEEDS, NUM_ENVS = 2, 64


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "steps", "least"), [("HalfCheetah", 1_000_000, 2.5), ("Ant", 2_000_000, 1.0), ("Anymal", 2_000_000, -0.6)]
)
def test_ppo_learns_with_the_humans_shapers(task: str, steps: int, least: float) -> None:
    threads, section = len(os.sched_getaffinity(0)), defaults()
    iterations = -(-steps // (NUM_ENVS * section.rollout_steps))
    result = train_humans("ppo", section, task, SEEDS, NUM_ENVS, iterations, list(range(SEEDS)), threads)
    print(f"{task}: {result.score.round(3).tolist()} after {result.steps:,} steps")
    assert (result.score >= least).all(), result.score
