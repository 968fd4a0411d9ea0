"""Gymnasium's MountainCarContinuous with a reward from outside (https://gymnasium.farama.org)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.continuous_mountain_car import Continuous_MountainCarEnv


class MountainCarContinuous(Continuous_MountainCarEnv):
    """Drives as the original does; what a step is worth to the agent is ``compute_reward``'s business."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        # state: [position in -1.2..0.6, velocity in -0.07..0.07]; the valley is at -0.52, the flag at goal_position
        state, true_reward, terminated, truncated, _ = super().step(action)

        reward, parts = self.compute_reward(state, action, terminated)
        parts["fitness_score"] = self.compute_fitness_score(true_reward)

        return state, reward, terminated, truncated, parts

    def compute_fitness_score(self, true_reward: float) -> float:
        """This step's part of the fitness: 100 at the flag, minus 0.1 of the squared action."""
        return float(true_reward)
