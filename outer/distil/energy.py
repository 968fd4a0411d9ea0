"""Energy distance of two samples (Szekely and Rizzo 2013, https://doi.org/10.1016/j.jspi.2013.03.018), and in which
units states are compared by it."""

from __future__ import annotations

from typing import Sequence, Tuple

import torch
from torch import Tensor

SHARPNESS = 30.0  # of a softmax in place of a one-hot code
MANY = 64  # features, from which distances are products of matrices
CONSTANT = 1e-5  # of its largest size: a standard deviation below is rounding


def energy_loss(x: Tensor, y: Tensor) -> Tensor:
    """The part of the energy distance 2 E|x - y| - E|x - x'| - E|y - y'| that depends on x, of samples [n, F]."""
    return 2 * _mean_distance(x, y) - _mean_distance(x, x)


def _mean_distance(x: Tensor, y: Tensor) -> Tensor:
    """E|x - y|, float32. Products of matrices are an eighth of the work where there are many features; in float32 they
    would round the distances of near points away."""
    if x.shape[1] < MANY:
        return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").mean()
    return torch.cdist(x.double(), y.double(), compute_mode="use_mm_for_euclid_dist").mean().float()


def units_of(states: Tensor, codes: Sequence[Tuple[int, int]] = ()) -> Tensor:
    """The unit in which distances of states [n, F] are measured, float32 [F]: each feature's standard deviation; 1
    within the one-hot parts ``codes``, and for a feature that never changed, which would else outweigh all others."""
    deviation = states.std(0)
    units = torch.where(deviation > CONSTANT * states.abs().amax(0).clamp(min=1.0), deviation, torch.ones(()))
    for start, stop in codes:
        units[start:stop] = 1.0
    return units


def softened(states: Tensor, codes: Sequence[Tuple[int, int]]) -> Tensor:
    """States [n, F] whose one-hot parts [start, stop) are near what the bandit makes of them, with a gradient."""
    for start, stop in codes:
        code = torch.softmax(SHARPNESS * states[:, start:stop], 1)
        states = torch.cat((states[:, :start], code, states[:, stop:]), 1)
    return states
