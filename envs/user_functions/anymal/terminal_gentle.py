"""An episode ends when the trunk touches the ground or lies on its side, not at the first touch of a knee."""

from __future__ import annotations

from typing import Dict

from torch import Tensor


def compute_terminal(state: Dict[str, Tensor]) -> Tensor:
    trunk = state["contact_forces"][:, 0].norm(dim=1) > 1.0  # N
    on_its_side = state["projected_gravity"][:, 2] > -0.5  # tilted by more than 60 degrees
    return trunk | on_its_side
