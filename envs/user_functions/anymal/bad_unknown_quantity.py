"""Bad: reads what the state does not have."""

from __future__ import annotations


def compute_reward(state):
    return -(state["base_height"] - 0.45).abs()
