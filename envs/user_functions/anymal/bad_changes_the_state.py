"""Bad: subtracts in place, and with that moves the joints for everybody who looks after it."""

from __future__ import annotations

import torch


def compute_observation(state):
    joints = state["dof_pos"]
    joints -= state["default_dof_pos"]
    return torch.cat((state["projected_gravity"], state["commands"], joints, state["dof_vel"]), 1)
