"""Forward velocity, m/s, and nothing else: falling costs only what comes after."""

from __future__ import annotations

from typing import Dict

from torch import Tensor


def compute_reward(state: Dict[str, Tensor]) -> Tensor:
    return state["forward_velocity"]
