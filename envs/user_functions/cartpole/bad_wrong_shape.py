"""Bad: observations transposed."""

from __future__ import annotations

import torch


def compute_observation(state):
    return torch.stack((state["cart_position"], state["pole_angle"]))
