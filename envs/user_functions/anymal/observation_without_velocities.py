"""What a robot knows without a velocity estimator: which way is down, what is asked of it, its joints and what it did.
30 numbers instead of 48."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor


def compute_observation(state: Dict[str, Tensor]) -> Tensor:
    joints = state["dof_pos"] - state["default_dof_pos"]
    return torch.cat((state["projected_gravity"], state["commands"], joints, state["action"]), 1)
