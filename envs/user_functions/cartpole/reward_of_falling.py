"""A reward that is sound and wrong: it likes the pole to lean."""

from __future__ import annotations

from typing import Dict

from torch import Tensor


def compute_reward(state: Dict[str, Tensor]) -> Tensor:
    return state["pole_angle"].abs()
