"""Gymnasium's two pushes: all of the force to one side or the other."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

FORCE = 10.0  # N


def compute_torque(action: Tensor, state: Dict[str, Tensor]) -> Tensor:
    return torch.where(action > 0, FORCE, -FORCE)
