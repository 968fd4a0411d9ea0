"""Bad: one column too many."""

from __future__ import annotations


def compute_reward(state):
    return state["torso_velocity"][:, :1]
