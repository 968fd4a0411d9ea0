"""CartPole-v0: balance a pole on a cart (Barto, Sutton, Anderson 1983), stepping exactly as Gymnasium's."""

from __future__ import annotations

import math
from typing import List, Tuple

import torch
from torch import Tensor

from envolve.envs.task import Task, register

GRAVITY = 9.8  # m/s^2
MASS_CART, MASS_POLE = 1.0, 0.1  # kg
TOTAL_MASS = MASS_POLE + MASS_CART
HALF_LENGTH = 0.5  # m, half the pole
POLE_MASS_LENGTH = MASS_POLE * HALF_LENGTH
FORCE = 10.0  # N
TAU = 0.02  # s per step
X_LIMIT = 2.4  # m
THETA_LIMIT = 12 * 2 * math.pi / 360  # rad
RESET_LOW, RESET_RANGE = -0.05, 0.1


@register
class CartPole(Task):
    """State and observation: position (m), velocity (m/s), pole angle (rad), angular velocity (rad/s).

    Actions: 0 pushes left, 1 right. Every step pays 1, the terminating one too.
    """

    name = "CartPole-v0"
    observation_size = 4
    num_actions = 2
    reset_uniforms = 4
    default_max_steps = 200
    default_solved_reward = 195.0

    def reset(self, u: Tensor) -> Tensor:
        """u: [P, N, 4] -> state float64 [P, N, 4], each value in U(-0.05, 0.05)."""
        return RESET_LOW + RESET_RANGE * u.to(torch.float64)

    def observe(self, state: Tensor) -> Tensor:
        return state.to(torch.float32)

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        x, x_dot, theta, theta_dot = state.unbind(-1)
        force = (action * 2 - 1).to(torch.float64) * FORCE
        cos, sin = torch.cos(theta), torch.sin(theta)
        # temp = (F + m_p l w^2 sin) / m, w' = (g sin - cos temp) / (l (4/3 - m_p cos^2 / m)),
        # v' = temp - m_p l w' cos / m, with m the total mass and l half the pole
        temp = (force + POLE_MASS_LENGTH * theta_dot.square() * sin) / TOTAL_MASS
        theta_acc = (GRAVITY * sin - cos * temp) / (HALF_LENGTH * (4.0 / 3.0 - MASS_POLE * cos.square() / TOTAL_MASS))
        x_acc = temp - POLE_MASS_LENGTH * theta_acc * cos / TOTAL_MASS
        x = x + TAU * x_dot  # explicit Euler: positions move with the old velocities
        x_dot = x_dot + TAU * x_acc
        theta = theta + TAU * theta_dot
        theta_dot = theta_dot + TAU * theta_acc
        terminated = (x.abs() > X_LIMIT) | (theta.abs() > THETA_LIMIT)
        reward = torch.ones(action.shape, dtype=torch.float32, device=state.device)
        return torch.stack((x, x_dot, theta, theta_dot), dim=-1), reward, terminated

    def observation_bounds(self) -> Tuple[List[float], List[float]]:
        high = [2 * X_LIMIT, math.inf, 2 * THETA_LIMIT, math.inf]
        return [-h for h in high], high
