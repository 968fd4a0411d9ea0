"""MountainCarContinuous-v0: the car with a motor of any strength, stepping exactly as Gymnasium's.

Gymnasium keeps this state in float32 from the first step on and computes in float32 but for the cosine (under numpy 2),
so the state here is float32, at the reset too.
"""

from __future__ import annotations

from typing import List, Tuple

import torch
from torch import Tensor

from envolve.envs.classic.mountain_car import GRAVITY, MAX_POSITION, MAX_SPEED, MIN_POSITION, RESET_HIGH, RESET_LOW
from envolve.envs.task import Task, register

GOAL_POSITION = 0.45
POWER = 0.0015
GOAL_REWARD, ACTION_COST = 100.0, 0.1


@register
class MountainCarContinuous(Task):
    """State and observation: position, velocity (per step). Action: the force, in [-1, 1].

    A step pays -0.1 force^2, the one that reaches the goal 100 more.
    """

    name = gymnasium = "MountainCarContinuous-v0"
    observation_size = 2
    action_size = 1
    reset_uniforms = 1
    default_max_steps = 999
    default_solved_reward = 90.0

    def reset(self, u: Tensor) -> Tensor:
        """u: [P, N, 1] -> state float32 [P, N, 2], the position in U(-0.6, -0.4), at rest."""
        position = (RESET_LOW + (RESET_HIGH - RESET_LOW) * u.to(torch.float64)).to(torch.float32)
        return torch.cat((position, torch.zeros_like(position)), dim=-1)

    def observe(self, state: Tensor) -> Tensor:
        return state

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        position, velocity = state.unbind(-1)
        force = action[..., 0]
        pull = (GRAVITY * torch.cos((3 * position).to(torch.float64))).to(torch.float32)
        velocity = (velocity + (force.clamp(-1.0, 1.0) * POWER - pull)).clamp(-MAX_SPEED, MAX_SPEED)
        position = (position + velocity).clamp(MIN_POSITION, MAX_POSITION)
        velocity = velocity.masked_fill((position == MIN_POSITION) & (velocity < 0), 0.0)  # the wall on the left
        terminated = (position >= GOAL_POSITION) & (velocity >= 0)
        reward = terminated * GOAL_REWARD - ACTION_COST * force.to(torch.float64).square()
        return torch.stack((position, velocity), dim=-1), reward.to(torch.float32), terminated

    def observation_bounds(self) -> Tuple[List[float], List[float]]:
        return [MIN_POSITION, -MAX_SPEED], [MAX_POSITION, MAX_SPEED]
