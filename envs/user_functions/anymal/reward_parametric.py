"""Tracking and four costs whose weights an outer loop finds: PARAMS has the human's guess."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

PARAMS = {
    "width": 0.25,  # (m/s)^2 and (rad/s)^2: how fast the worth of tracking falls with its error
    "yaw": 0.5,
    "torque": 2.5e-5,
    "tilt": 0.2,
    "action_rate": 0.01,
    "alive": 0.0,
}
DT = 0.02  # s


def compute_reward(state: Dict[str, Tensor], params: Tensor) -> Tensor:
    width, yaw, torque, tilt, action_rate, alive = params.unbind(1)
    width = width.abs() + 1e-3
    error = (state["commands"][:, :2] - state["base_lin_vel"][:, :2]).square().sum(1)
    error_yaw = (state["commands"][:, 2] - state["base_ang_vel"][:, 2]).square()
    reward = torch.exp(-error / width) + yaw * torch.exp(-error_yaw / width) + alive
    reward = reward - torque * state["torque"].square().sum(1)
    reward = reward - tilt * state["projected_gravity"][:, :2].square().sum(1)
    reward = reward - action_rate * (state["action"] - state["previous_action"]).square().sum(1)
    return DT * reward
