"""The four quantities, each divided by about what it reaches."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor


def compute_observation(state: Dict[str, Tensor]) -> Tensor:
    parts = (
        state["cart_position"] / 2.4,
        state["cart_velocity"] / 2,
        state["pole_angle"] / 0.21,
        state["pole_angular_velocity"] / 2,
    )
    return torch.stack(parts, 1)
