"""Bad: a reward of integers."""

from __future__ import annotations


def compute_reward(state):
    return (state["commands"][:, :2] - state["base_lin_vel"][:, :2]).norm(dim=1).round().long()
