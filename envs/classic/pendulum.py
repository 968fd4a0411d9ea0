"""Pendulum-v0: swing a pendulum up and hold it, stepping exactly as Gymnasium's ``Pendulum-v1`` (the same dynamics)."""

from __future__ import annotations

import math
from typing import List, Tuple

import torch
from torch import Tensor

from envolve.envs.task import Task, register

GRAVITY = 10.0  # m/s^2
MASS, LENGTH = 1.0, 1.0  # kg, m
DT = 0.05  # s per step
MAX_SPEED = 8.0  # rad/s
MAX_TORQUE = 2.0  # N m
RESET_LIMITS = (math.pi, 1.0)  # rad, rad/s


@register
class Pendulum(Task):
    """State: angle from upright (rad, not wrapped), velocity (rad/s). Observation: cos and sin of the angle, velocity.

    Action: the torque, in [-2, 2] N m. A step pays -(angle^2 + 0.1 velocity^2 + 0.001 torque^2) with the angle wrapped
    to [-pi, pi), all before the step; no episode ends before its time limit.
    """

    name = "Pendulum-v0"
    gymnasium = "Pendulum-v1"
    observation_size = 3
    action_size = 1
    max_action = MAX_TORQUE
    reset_uniforms = 2
    default_max_steps = 200
    default_solved_reward = -300.0

    def reset(self, u: Tensor) -> Tensor:
        """u: [P, N, 2] -> state float64 [P, N, 2], the angle in U(-pi, pi), the velocity in U(-1, 1)."""
        u = u.to(torch.float64)
        return torch.stack([-limit + 2 * limit * u[..., i] for i, limit in enumerate(RESET_LIMITS)], dim=-1)

    def observe(self, state: Tensor) -> Tensor:
        angle, velocity = state.unbind(-1)
        return torch.stack((torch.cos(angle), torch.sin(angle), velocity), dim=-1).to(torch.float32)

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        angle, velocity = state.unbind(-1)
        torque = action[..., 0].clamp(-MAX_TORQUE, MAX_TORQUE)  # float32, and so are its products, as Gymnasium's
        wrapped = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = wrapped.square() + 0.1 * velocity.square() + 0.001 * torque.square()
        # w' = 3 g / (2 l) sin + 3 / (m l^2) torque
        acc = 3 * GRAVITY / (2 * LENGTH) * torch.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        velocity = (velocity + acc * DT).clamp(-MAX_SPEED, MAX_SPEED)
        angle = angle + velocity * DT  # semi-implicit Euler: the angle moves with the new velocity
        terminated = torch.zeros(angle.shape, dtype=torch.bool, device=state.device)
        return torch.stack((angle, velocity), dim=-1), -cost.to(torch.float32), terminated

    def observation_bounds(self) -> Tuple[List[float], List[float]]:
        high = [1.0, 1.0, MAX_SPEED]
        return [-h for h in high], high
