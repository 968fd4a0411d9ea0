"""1 for every step: best is not to move."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor


def compute_reward(state: Dict[str, Tensor]) -> Tensor:
    return torch.ones_like(state["forward_velocity"])
