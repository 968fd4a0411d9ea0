"""Forward velocity and a constant for every step not yet fallen; movements cost nothing."""

from __future__ import annotations

from typing import Dict

from torch import Tensor


def compute_reward(state: Dict[str, Tensor]) -> Tensor:
    return 2 * state["forward_velocity"] + 1
