"""Gradient descent, by which every fit of this folder finds its numbers. Python 3.8."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor


def descend(flat: Tensor, loss: Callable[[Tensor, int], Tensor], steps: int, lr: float, last: float) -> Tensor:
    """Minimises loss(flat, step) by Adam from ``flat`` [1, D] -> [1, D]. lr: the learning rate, which falls in a line
    to ``last`` times that."""
    flat = flat.clone().requires_grad_(True)
    optimiser = torch.optim.Adam([flat], lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, last, steps)
    for step in range(steps):
        optimiser.zero_grad()
        loss(flat, step).backward()
        optimiser.step()
        schedule.step()
    return flat.detach()
