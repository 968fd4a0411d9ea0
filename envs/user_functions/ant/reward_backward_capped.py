"""Up to a third of a metre per second backwards is rewarded: the wrong way, slowly."""

from __future__ import annotations

from typing import Dict

from torch import Tensor


def compute_reward(state: Dict[str, Tensor]) -> Tensor:
    return (-state["forward_velocity"]).clamp(max=0.33) + 0.5
