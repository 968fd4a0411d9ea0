"""Energy distance of two samples (Szekely and Rizzo 2013, https://doi.org/10.1016/j.jspi.2013.03.018)."""

from __future__ import annotations

from torch import Tensor


def energy_distance(x: Tensor, y: Tensor) -> Tensor:
    """2 E|x - y| - E|x - x'| - E|y - y'| of two samples [n, F]; 0 only for equal distributions."""

    def mean_distance(a: Tensor, b: Tensor) -> Tensor:
        return ((a[:, None] - b[None]).square().sum(-1) + 1e-12).sqrt().mean()

    return 2 * mean_distance(x, y) - mean_distance(x, x) - mean_distance(y, y)
