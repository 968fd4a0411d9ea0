"""Acrobot-v1: swing a two-link arm up by a torque at its elbow, stepping exactly as Gymnasium's ``Acrobot-v1``.

Dynamics of Sutton and Barto's book (http://incompleteideas.net/book/the-book.html), one Runge-Kutta step of 0.2 s.
"""

from __future__ import annotations

import math
from typing import List, Tuple

import torch
from torch import Tensor

from envolve.envs.task import Task, register

DT = 0.2  # s per step
LINK_LENGTH = 1.0  # m, link 1
LINK_MASS = 1.0  # kg, each link
LINK_COM = 0.5  # m, centre of mass of each link
LINK_MOI = 1.0  # kg m^2, each link
GRAVITY = 9.8  # m/s^2
MAX_VEL_1, MAX_VEL_2 = 4 * math.pi, 9 * math.pi  # rad/s
RESET_LOW, RESET_RANGE = -0.1, 0.2


def derivative(state: Tensor, torque: Tensor) -> Tensor:
    """Time derivative of (theta1, theta2, dtheta1, dtheta2). state: [..., 4], torque: [...] -> [..., 4]."""
    m, l1, lc, inertia, g = LINK_MASS, LINK_LENGTH, LINK_COM, LINK_MOI, GRAVITY
    theta1, theta2, dtheta1, dtheta2 = state.unbind(-1)
    cos2, sin2 = torch.cos(theta2), torch.sin(theta2)
    d1 = m * lc**2 + m * (l1**2 + lc**2 + 2 * l1 * lc * cos2) + inertia + inertia
    d2 = m * (lc**2 + l1 * lc * cos2) + inertia
    phi2 = m * lc * g * torch.cos(theta1 + theta2 - math.pi / 2)
    phi1 = (
        -m * l1 * lc * dtheta2.square() * sin2
        - 2 * m * l1 * lc * dtheta2 * dtheta1 * sin2
        + (m * lc + m * l1) * g * torch.cos(theta1 - math.pi / 2)
        + phi2
    )
    # The book's equation; the 1996 paper lacks the term in dtheta1^2.
    ddtheta2 = (torque + d2 / d1 * phi1 - m * l1 * lc * dtheta1.square() * sin2 - phi2) / (
        m * lc**2 + inertia - d2.square() / d1
    )
    ddtheta1 = -(d2 * ddtheta2 + phi1) / d1
    return torch.stack((dtheta1, dtheta2, ddtheta1, ddtheta2), dim=-1)


def wrap_angle(x: Tensor) -> Tensor:
    """x -> [-pi, pi] by whole turns. Values inside stay as they are, to the bit."""
    turns = ((x.abs() - math.pi) / (2 * math.pi)).ceil().clamp(min=0)
    return x - x.sign() * turns * (2 * math.pi)


@register
class Acrobot(Task):
    """State: theta1, theta2 (rad), their velocities (rad/s). Observation: cos and sin of theta1, of theta2, velocities.

    Actions 0, 1, 2: torque -1, 0, 1 N m. Every step pays -1, the one that reaches the goal height 0.
    """

    name = "Acrobot-v1"
    observation_size = 6
    num_actions = 3
    reset_uniforms = 4
    default_max_steps = 500
    default_solved_reward = -100.0

    def reset(self, u: Tensor) -> Tensor:
        """u: [P, N, 4] -> state float64 [P, N, 4], each value in U(-0.1, 0.1)."""
        return RESET_LOW + RESET_RANGE * u.to(torch.float64)

    def observe(self, state: Tensor) -> Tensor:
        theta = state[..., :2]
        cos, sin = torch.cos(theta), torch.sin(theta)
        angles = torch.stack((cos, sin), dim=-1).flatten(-2)  # cos1, sin1, cos2, sin2
        return torch.cat((angles, state[..., 2:]), dim=-1).to(torch.float32)

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        torque = (action - 1).to(torch.float64)
        k1 = derivative(state, torque)
        k2 = derivative(state + DT / 2 * k1, torque)
        k3 = derivative(state + DT / 2 * k2, torque)
        k4 = derivative(state + DT * k3, torque)
        new = state + DT / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
        theta = wrap_angle(new[..., :2])
        velocity1 = new[..., 2].clamp(-MAX_VEL_1, MAX_VEL_1)
        velocity2 = new[..., 3].clamp(-MAX_VEL_2, MAX_VEL_2)
        new = torch.stack((theta[..., 0], theta[..., 1], velocity1, velocity2), dim=-1)
        # the tip is above the line one link length over the base: -cos(theta1) - cos(theta1 + theta2) > 1
        terminated = -torch.cos(new[..., 0]) - torch.cos(new[..., 1] + new[..., 0]) > 1.0
        return new, terminated.to(torch.float32) - 1.0, terminated

    def observation_bounds(self) -> Tuple[List[float], List[float]]:
        high = [1.0, 1.0, 1.0, 1.0, MAX_VEL_1, MAX_VEL_2]
        return [-h for h in high], high
