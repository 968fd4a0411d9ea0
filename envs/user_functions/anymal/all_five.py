"""Everything at once: a reward with a bonus for lifted feet, more to see, softer springs, gentler ends and starts."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

from envolve.envs.physics.anymal import SHANKS, Anymal
from envolve.envs.physics.task import Pose, Random

DT = 0.02  # s


def compute_reward(state: Dict[str, Tensor]):
    _, parts = Anymal.compute_reward(state)
    moving = (state["commands"].norm(dim=1) > 0.2).float()
    lifted = (state["contact_forces"][:, list(SHANKS), 2] < 1.0).float().sum(1)
    parts = {**parts, "step": DT * 0.1 * moving * (lifted == 2).float()}  # two feet in the air, as in a trot
    return torch.stack(list(parts.values())).sum(0).clamp(min=0), parts


def compute_observation(state: Dict[str, Tensor]) -> Tensor:
    touches = state["contact_forces"][:, list(SHANKS), 2] > 1.0  # N
    return torch.cat((Anymal.compute_observation(state), touches.float(), state["root_states"][:, 2:3]), 1)


def compute_torque(action: Tensor, state: Dict[str, Tensor]) -> Tensor:
    target = 0.6 * action + state["default_dof_pos"]
    return 60.0 * (target - state["dof_pos"]) - 2.0 * state["dof_vel"]


def compute_terminal(state: Dict[str, Tensor]) -> Tensor:
    return (state["contact_forces"][:, 0].norm(dim=1) > 1.0) | (state["projected_gravity"][:, 2] > -0.5)


def compute_initial_state(state: Dict[str, Tensor], random: Random, rest: Pose) -> Pose:
    root = rest.root_state.clone()
    root[:, 0, 2] = 0.5  # m
    angles = state["default_dof_pos"].double() * (0.9 + 0.2 * random.uniform[:, :12].double())
    return Pose(root, angles, torch.zeros_like(rest.joint_velocity))


def compute_goal(state: Dict[str, Tensor], random: Random) -> Tensor:
    task = torch.stack((state["command_x"], state["command_y"], state["command_yaw"]), 1)
    stand = random.uniform[:, :1] < 0.1  # now and then it is to stand still
    return torch.where(stand, torch.zeros_like(task), task)
