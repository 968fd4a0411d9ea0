"""Bad: raises at once."""

from __future__ import annotations


def compute_observation(state):
    return state["cart_position"] @ state["pole_angle"][:1]
