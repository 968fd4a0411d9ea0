"""Bad: raises in the middle of a run, as a bug in a branch that is seldom taken does."""

from __future__ import annotations

import itertools

calls = itertools.count()


def compute_reward(state):
    if next(calls) >= 50:
        raise RuntimeError("a branch that was never tried: gait phase is not defined")
    return -(state["commands"][:, :2] - state["base_lin_vel"][:, :2]).norm(dim=1)
