"""Episodes begin in the standing pose, just above the ground, already moving as asked: that is nearer to a walk."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

from envolve.envs.physics.task import Pose, Random


def compute_initial_state(state: Dict[str, Tensor], random: Random, rest: Pose) -> Pose:
    n = len(state["progress"])
    root = rest.root_state.clone()
    root[:, 0, 2] = 0.5  # m
    root[:, 0, 7:9] = 0.5 * state["goal"][:, :2].double()
    root[:, 0, 12] = 0.5 * state["goal"][:, 2].double()
    noise = 0.1 * (2 * random.uniform[:n, :12].double() - 1)  # rad
    return Pose(root, state["default_dof_pos"].double() + noise, torch.zeros_like(rest.joint_velocity))
