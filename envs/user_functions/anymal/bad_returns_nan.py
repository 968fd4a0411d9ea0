"""Bad: the square root of a number that is negative as soon as the robot is more than 1 m/s off its command."""

from __future__ import annotations


def compute_reward(state):
    error = (state["commands"][:, :2] - state["base_lin_vel"][:, :2]).norm(dim=1)
    return (1 - error).sqrt()
