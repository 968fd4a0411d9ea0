"""Bad: a logarithm of velocities that may be negative."""

from __future__ import annotations


def compute_reward(state):
    return state["forward_velocity"].log()
