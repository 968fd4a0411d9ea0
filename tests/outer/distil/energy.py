"""The whole energy distance, of which ``fit_bandit`` needs a part."""

from __future__ import annotations

from torch import Tensor

from envolve.outer.distil.energy import energy_loss


def energy_distance(x: Tensor, y: Tensor) -> Tensor:
    """2 E|x - y| - E|x - x'| - E|y - y'| of two samples [n, F]; 0 only for equal distributions."""
    return energy_loss(x, y) - energy_loss(y, y)
