"""Tracking, weighed against the mechanical power that the motors spend (Fu et al. 2021, https://arxiv.org/abs/2111.01674,
find that gaits come out of it)."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

DT = 0.02  # s


def compute_reward(state: Dict[str, Tensor]):
    error = (state["commands"][:, :2] - state["base_lin_vel"][:, :2]).square().sum(1)
    error_yaw = (state["commands"][:, 2] - state["base_ang_vel"][:, 2]).square()
    power = (state["torque"] * state["dof_vel"]).abs().sum(1)  # W
    components = {
        "linear": DT * torch.exp(-error / 0.25),
        "yaw": DT * 0.5 * torch.exp(-error_yaw / 0.25),
        "power": DT * -5e-4 * power,
        "alive": torch.full_like(power, DT * 0.5),
    }
    return torch.stack(list(components.values())).sum(0), components
