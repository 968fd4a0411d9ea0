"""An episode ends only when the ant lies on its back: it learns to get up from low poses."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

from envolve.envs.sim.rotations import rotate


def compute_terminal(state: Dict[str, Tensor]) -> Tensor:
    up = torch.zeros_like(state["torso_position"])
    up[:, 2] = 1
    return rotate(state["torso_rotation"], up)[:, 2] < -0.5
