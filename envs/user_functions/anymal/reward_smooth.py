"""The human's tracking terms, and a wish for a level, calm body and for actions that change little."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

DT = 0.02  # s


def compute_reward(state: Dict[str, Tensor]):
    error = (state["commands"][:, :2] - state["base_lin_vel"][:, :2]).square().sum(1)
    error_yaw = (state["commands"][:, 2] - state["base_ang_vel"][:, 2]).square()
    components = {
        "linear": DT * torch.exp(-error / 0.25),
        "yaw": DT * 0.5 * torch.exp(-error_yaw / 0.25),
        "tilt": DT * -1.0 * state["projected_gravity"][:, :2].square().sum(1),
        "bounce": DT * -0.5 * state["base_lin_vel"][:, 2].square(),
        "roll and pitch": DT * -0.05 * state["base_ang_vel"][:, :2].square().sum(1),
        "action rate": DT * -0.01 * (state["action"] - state["previous_action"]).square().sum(1),
        "torque": DT * -2.5e-5 * state["torque"].square().sum(1),
    }
    return torch.stack(list(components.values())).sum(0).clamp(min=0), components
