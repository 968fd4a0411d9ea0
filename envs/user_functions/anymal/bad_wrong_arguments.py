"""Bad: asks for arguments that no reward is given."""

from __future__ import annotations


def compute_reward(state, action, next_state):
    return next_state["base_lin_vel"][:, 0] - 0.01 * action.square().sum(1)
