"""A task of one's own: a point on a line that is to come to rest at the origin.

In a configuration: ``env_name: my_task.py:PointMass``. All P members and N environments are stepped by one call.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envolve import Task


class PointMass(Task):
    """Actions: push left, nothing, push right. State and observation: position (m) and velocity (m/s)."""

    observation_size = 2
    num_actions = 3
    reset_uniforms = 1
    default_max_steps = 40
    default_solved_reward = -20.0  # standing still costs about 40

    STEP, PUSH, FAR = 0.1, 2.0, 3.0  # s, m/s^2, m

    def reset(self, u: Tensor) -> Tensor:
        """Somewhere between 0.5 m and 1.5 m to the right, at rest."""
        position = 0.5 + u[..., :1]
        return torch.cat([position, torch.zeros_like(position)], -1)

    def observe(self, state: Tensor) -> Tensor:
        return state.float()

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        position, velocity = state[..., 0], state[..., 1]
        velocity = velocity + self.STEP * self.PUSH * (action - 1)
        position = position + self.STEP * velocity
        reward = -(position.abs() + 0.1 * velocity.abs()).float()
        return torch.stack([position, velocity], -1), reward, position.abs() > self.FAR
