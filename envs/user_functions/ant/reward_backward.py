"""Velocity backwards, and survival: the wrong way, as fast as it can."""

from __future__ import annotations

from typing import Dict

from torch import Tensor


def compute_reward(state: Dict[str, Tensor]) -> Tensor:
    return 1 - 2 * state["forward_velocity"]
