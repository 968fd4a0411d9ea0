"""Hand-written policies of one line each, and the states in which a bandit asks for their actions.

They use no step of the task. Their own scores are part of the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class HandMade(NamedTuple):
    rule: str  # in words
    act: Callable[[Tensor], Tensor]  # observations float32 [n, F] -> actions int64 [n] or float32 [n, A]
    states: Callable[[Tensor], Tensor]  # uniforms [n, F] -> observations float32 [n, F]


def _normal(u: Tensor) -> Tensor:
    """Standard normal numbers from uniforms."""
    return math.sqrt(2) * torch.erfinv((2 * u - 1).clamp(-0.999999, 0.999999))


def _cart_pole(x: Tensor) -> Tensor:
    return (0.05 * x[:, 0] + 0.2 * x[:, 1] + x[:, 2] + x[:, 3] > 0).long()


def _acrobot(x: Tensor) -> Tensor:
    return 2 * (x[:, 5] > 0).long()


def _acrobot_states(u: Tensor) -> Tensor:
    first, second = 2 * math.pi * u[:, 0], 2 * math.pi * u[:, 1]
    speed = 2 * _normal(u[:, 2:4])
    return torch.stack((first.cos(), first.sin(), second.cos(), second.sin(), speed[:, 0], speed[:, 1]), 1)


def _mountain_car(x: Tensor) -> Tensor:
    return torch.sign(x[:, 1:2])


def _mountain_car_states(u: Tensor) -> Tensor:
    return torch.stack((-1.2 + 1.8 * u[:, 0], 0.14 * u[:, 1] - 0.07), 1)


def _pendulum(x: Tensor) -> Tensor:
    """Pumps energy until the pole is near the top, then uses a PD controller. x: cos, sin, angular velocity; torque in
    [-2, 2]. The energy of the uniform rod (mass and length 1, g = 10) at rest at the top is 5."""
    angle, speed = torch.atan2(x[:, 1], x[:, 0]), x[:, 2]
    energy = speed.square() / 6 + 5 * x[:, 0]
    pump = torch.where(speed == 0, 2.0, 2 * torch.sign(speed * (5 - energy)))
    hold = -(12 * angle + 3 * speed)
    return torch.where(angle.abs() < 0.5, hold, pump).clamp(-2, 2).unsqueeze(1)


def _pendulum_states(u: Tensor) -> Tensor:
    near = u[:, 2] < 0.5  # half of them near the top, where precision counts
    angle = (2 * u[:, 0] - 1) * torch.where(near, 0.5, math.pi)
    speed = (2 * u[:, 1] - 1) * torch.where(near, 2.0, 8.0)
    return torch.stack((angle.cos(), angle.sin(), speed), 1)


HAND_MADE = {
    "CartPole-v0": HandMade("push to where 0.05 x + 0.2 x' + theta + theta' points", _cart_pole, _normal),
    "Acrobot-v1": HandMade("turn the outer link on in its own direction", _acrobot, _acrobot_states),
    "MountainCarContinuous-v0": HandMade("full force in the direction of motion", _mountain_car, _mountain_car_states),
    "Pendulum-v0": HandMade("pump energy, then a PD controller", _pendulum, _pendulum_states),
}
