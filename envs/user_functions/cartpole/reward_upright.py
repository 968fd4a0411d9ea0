"""How upright the pole is, less how far the cart is off the middle."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor


def compute_reward(state: Dict[str, Tensor]):
    components = {
        "upright": torch.cos(state["pole_angle"]),
        "middle": -0.1 * state["cart_position"].square(),
    }
    return components["upright"] + components["middle"], components
