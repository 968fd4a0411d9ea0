"""1 while it runs faster than 1 m/s, else 0: seldom seen by one that has not learned to run."""

from __future__ import annotations

from typing import Dict

from torch import Tensor


def compute_reward(state: Dict[str, Tensor]) -> Tensor:
    return (state["forward_velocity"] > 1.0).float()
