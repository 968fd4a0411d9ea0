"""The bandit of "Learning Synthetic Environments and Reward Networks" (ICLR 2022): 20 arms and no state."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from envolve.envs.classic.finite import FiniteTask
from envolve.envs.task import register

# The mean reward of each arm: 0.05, 0.1, ..., 1 in the order of random.Random(0).shuffle, as in the original
# (envs/classic/bandit.py, BanditFixedPermutedGaussian).
MEANS = (
    0.55, 0.95, 0.85, 0.75, 0.05, 0.9, 0.6, 0.15, 0.2, 0.5, 0.3, 0.4, 0.25, 1.0, 0.35, 0.8, 0.45, 0.1, 0.7, 0.65,
)  # fmt: skip


@register
class Bandit(FiniteTask):
    """One cell, 20 arms. Arm i pays N(MEANS[i], 1): ``step`` returns the mean, the loops add the noise."""

    name = "Bandit"
    num_states = observation_size = 1
    num_actions = len(MEANS)
    reward_noise = 1.0
    default_max_steps = 50
    default_solved_reward = 49.0  # of at most 50 on average

    def make_tables(self) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        shape = (1, len(MEANS))
        return np.zeros(shape, np.int32), np.array([MEANS], np.float32), np.zeros(shape, np.bool_)
