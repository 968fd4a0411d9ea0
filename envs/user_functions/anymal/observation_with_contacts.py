"""The human's observation, and which feet touch the ground: 52 numbers."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

from envolve.envs.physics.anymal import SHANKS, Anymal


def compute_observation(state: Dict[str, Tensor]) -> Tensor:
    touches = state["contact_forces"][:, list(SHANKS), 2] > 1.0  # N
    return torch.cat((Anymal.compute_observation(state), touches.float()), 1)
