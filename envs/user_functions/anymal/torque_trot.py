"""Six actions instead of twelve: diagonal legs move alike, as in a trot. With an observation that fits.

Legs are LF, RF, LH, RH. What mirrors the left fore leg into the right hind one turns every joint's sign around."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

ACTION_SIZE = 6
STIFFNESS, DAMPING, SCALE = 85.0, 2.0, 0.5  # N m/rad, N m s/rad, rad


def compute_torque(action: Tensor, state: Dict[str, Tensor]) -> Tensor:
    left, right = action[:, :3], action[:, 3:]
    target = SCALE * torch.cat((left, right, -right, -left), 1) + state["default_dof_pos"]
    return STIFFNESS * (target - state["dof_pos"]) - DAMPING * state["dof_vel"]


def compute_observation(state: Dict[str, Tensor]) -> Tensor:
    joints = state["dof_pos"] - state["default_dof_pos"]
    body = (state["base_lin_vel"], state["base_ang_vel"], state["projected_gravity"], state["commands"])
    return torch.cat((*body, joints, 0.05 * state["dof_vel"], state["action"]), 1)
