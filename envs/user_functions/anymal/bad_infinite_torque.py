"""Bad: divides by a velocity that is zero at the start."""

from __future__ import annotations


def compute_torque(action, state):
    return 10 * action / state["base_lin_vel"].norm(dim=1, keepdim=True)
