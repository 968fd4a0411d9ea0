"""Bad: divides zero by zero when the pole stands exactly upright or leans to the left."""

from __future__ import annotations


def compute_reward(state):
    return state["pole_angle"].clamp(min=0) / state["pole_angle"].clamp(min=0)
