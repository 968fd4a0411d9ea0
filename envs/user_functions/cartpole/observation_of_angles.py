"""Sine and cosine of the angle instead of the angle: five numbers."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor


def compute_observation(state: Dict[str, Tensor]) -> Tensor:
    angle = state["pole_angle"]
    parts = (state["cart_position"], state["cart_velocity"], angle.sin(), angle.cos(), state["pole_angular_velocity"])
    return torch.stack(parts, 1)
