"""MountainCar-v0: rock a weak car out of a valley (Moore 1990), stepping exactly as Gymnasium's."""

from __future__ import annotations

from typing import List, Tuple

import torch
from torch import Tensor

from envolve.envs.task import Task, register

MIN_POSITION, MAX_POSITION = -1.2, 0.6
MAX_SPEED = 0.07
GOAL_POSITION = 0.5
FORCE, GRAVITY = 0.001, 0.0025
RESET_LOW, RESET_HIGH = -0.6, -0.4


@register
class MountainCar(Task):
    """State and observation: position, velocity (per step). The road is sin(3 position), its bottom at -pi / 6.

    Actions 0, 1, 2: push left, not, right. Every step pays -1, the one that reaches the goal too.
    """

    name = "MountainCar-v0"
    observation_size = 2
    num_actions = 3
    reset_uniforms = 1
    default_max_steps = 200
    default_solved_reward = -110.0

    def reset(self, u: Tensor) -> Tensor:
        """u: [P, N, 1] -> state float64 [P, N, 2], the position in U(-0.6, -0.4), at rest."""
        position = RESET_LOW + (RESET_HIGH - RESET_LOW) * u.to(torch.float64)
        return torch.cat((position, torch.zeros_like(position)), dim=-1)

    def observe(self, state: Tensor) -> Tensor:
        return state.to(torch.float32)

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        position, velocity = state.unbind(-1)
        push = (action - 1).to(torch.float64) * FORCE
        velocity = (velocity + (push - GRAVITY * torch.cos(3 * position))).clamp(-MAX_SPEED, MAX_SPEED)
        position = (position + velocity).clamp(MIN_POSITION, MAX_POSITION)
        velocity = velocity.masked_fill((position == MIN_POSITION) & (velocity < 0), 0.0)  # the wall on the left
        terminated = (position >= GOAL_POSITION) & (velocity >= 0)
        reward = torch.full(action.shape, -1.0, device=state.device)
        return torch.stack((position, velocity), dim=-1), reward, terminated

    def observation_bounds(self) -> Tuple[List[float], List[float]]:
        return [MIN_POSITION, -MAX_SPEED], [MAX_POSITION, MAX_SPEED]
