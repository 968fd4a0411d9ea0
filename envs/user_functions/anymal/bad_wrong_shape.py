"""Bad: one number for all environments instead of one for each."""

from __future__ import annotations

import torch


def compute_reward(state):
    error = (state["commands"][:, :2] - state["base_lin_vel"][:, :2]).square().sum(1)
    return torch.exp(-error / 0.25).mean()
