"""A quadratic cost whose weights an outer loop finds."""

from __future__ import annotations

from typing import Dict

from torch import Tensor

PARAMS = {"alive": 1.0, "position": 0.1, "velocity": 0.01, "angle": 1.0, "angular_velocity": 0.01}


def compute_reward(state: Dict[str, Tensor], params: Tensor) -> Tensor:
    alive, position, velocity, angle, angular_velocity = params.unbind(1)
    return (
        alive
        - position * state["cart_position"].square()
        - velocity * state["cart_velocity"].square()
        - angle * state["pole_angle"].square()
        - angular_velocity * state["pole_angular_velocity"].square()
    )
