"""What training a population returns, whatever the learner or back end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

OK, WORLD_DIVERGED, AGENT_DIVERGED = 0, 1, 2
REASONS = ("", "the world's output is not finite", "the agent's weights are not finite")


@dataclass
class TrainResult:
    """Axes: P members, E training episodes, T test episodes."""

    test_return: np.ndarray  # [P, T] float64: greedy returns of the final policy on the real task
    train_steps: np.ndarray  # [P] int64: environment steps trained on (world or task)
    updates: np.ndarray  # [P] int64
    episodes: np.ndarray  # [P] int64: training episodes begun
    real_steps: np.ndarray  # [P] int64: steps on the real task, tests included
    episode_return: np.ndarray  # [P, E] float32: logged reward of each training episode, NaN beyond the last
    episode_length: np.ndarray  # [P, E] int32: its steps, 0 beyond the last
    status: np.ndarray  # [P] int8: OK, WORLD_DIVERGED, AGENT_DIVERGED
    weights: np.ndarray  # [P, D] float32: the trained network (or Q table), zero-padded to the largest member
