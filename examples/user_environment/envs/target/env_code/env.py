"""The smallest complete environment for `envolve write --config`: a point in the plane that is to reach a target."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Target(gymnasium.Env):
    """Actions are accelerations. The reward comes from outside; the fitness is this file's."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-5, 5, (6,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.position, self.velocity = np.zeros(2), np.zeros(2)
        self.target = self.np_random.uniform(-2, 2, 2)
        return self.observed(), {}

    def step(self, action):
        # position and velocity in the plane, [x, y]; an episode has 100 steps of 0.05 s
        self.velocity = 0.95 * self.velocity + 0.05 * 4.0 * np.clip(action, -1, 1)
        self.position = np.clip(self.position + 0.05 * self.velocity, -5, 5)
        distance = float(np.linalg.norm(self.position - self.target))

        reward, parts = self.compute_reward(distance, self.velocity, action)
        parts["fitness_score"] = self.compute_fitness_score(distance)

        return self.observed(), reward, False, False, parts

    def compute_fitness_score(self, distance: float) -> float:
        """A hundredth for each step within 0.2 of the target: the share of an episode."""
        return 0.01 * (distance < 0.2)

    def observed(self) -> np.ndarray:
        return np.concatenate([self.position, self.velocity, self.target - self.position]).astype(np.float32)

    def render(self) -> np.ndarray:
        """The point in white, the target in green, 80 x 80 pixels."""
        picture = np.zeros((80, 80, 3), np.uint8)
        for (x, y), colour in ((self.target, (0, 200, 0)), (self.position, (255, 255, 255))):
            column, row = int(8 * x) + 40, 40 - int(8 * y)
            picture[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = colour
        return picture
