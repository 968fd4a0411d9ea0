"""Actions are torques: no spring holds the robot up, and standing has to be learned."""

from __future__ import annotations

from typing import Dict

from torch import Tensor

TORQUE = 40.0  # N m, of action 1


def compute_torque(action: Tensor, state: Dict[str, Tensor]) -> Tensor:
    return TORQUE * action
