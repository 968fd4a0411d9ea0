"""Actions are angles for a spring and a damper at every joint, about the model's middle pose."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

MIDDLE = (0.0, 0.87, 0.0, -0.87, 0.0, -0.87, 0.0, 0.87)  # rad: hips straight, ankles in the middle of their range
STIFFNESS, DAMPING, RANGE = 60.0, 3.0, 0.5  # N m/rad, N m s/rad, rad
# Motors are ordered as legs 4, 1, 2, 3, joints as legs 1, 2, 3, 4.
MOTORS = (6, 7, 0, 1, 2, 3, 4, 5)


def compute_torque(action: Tensor, state: Dict[str, Tensor]) -> Tensor:
    target = RANGE * action + torch.tensor(MIDDLE, device=action.device)
    return (STIFFNESS * (target - state["joint_position"]) - DAMPING * state["joint_velocity"])[:, MOTORS]
