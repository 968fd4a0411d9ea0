"""Energies: similarity of the representations x of a state-action and y of a goal.

``logits`` compares every x with every y, ``pairs`` each x with its own y. Distances between all pairs come from one
matrix product, |x - y|^2 = |x|^2 + |y|^2 - 2 x.y, which takes a fraction of the time and memory of the differences
themselves. It cancels where x and y are alike beside their norms; hence the common mean of the y is taken off first,
which changes no distance.

Axes: P members, B batch, R features of a representation.
"""

from __future__ import annotations

import logging
from typing import Set, Tuple

import torch
from torch import Tensor

from envolve.core.registry import Registry

log = logging.getLogger("envolve")

EPSILON = 1e-6  # under a root: its slope at 0 is infinite
COSINE_SCALE = 1 / 0.07  # at first, of the learned factor that comes with ``cosine``

# accepted name -> energy. Newer versions of JaxGCRL call l2 "norm", and l2_no_sqrt "l2".
_NAMES: Registry[str] = Registry("energy_fn", {
    "l2": "l2", "norm": "l2", "l2_no_sqrt": "l2_no_sqrt", "l1": "l1", "dot": "dot", "cos": "cos", "cosine": "cosine",
    "mrn": "mrn", "mrn_shuf": "mrn_shuf", "mrn_pot_shuf": "mrn_pot_shuf",
})  # fmt: skip
ENERGY_NAMES: Tuple[str, ...] = tuple(_NAMES)
_said: Set[str] = set()


def canonical(name: str) -> str:
    """Energy function called ``name``. Raises ValueError with the nearest valid name."""
    found = _NAMES.find(name)
    if name == "l2" and name not in _said:
        _said.add(name)
        log.info(
            "energy_fn l2 is the distance, with the square root, as in JaxGCRL's first version (newer "
            "versions call it norm, and call the squared distance l2: that is l2_no_sqrt here)"
        )
    return found


def takes_future_action(energy: str) -> bool:
    """True if y represents the future state and action instead of a goal (MRN)."""
    return energy.startswith("mrn")


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """x: [P, B, R], y: [P, C, R] -> [P, B, C]."""
    centre = y.detach().mean(1, keepdim=True)
    x, y = x - centre, y - centre
    norms = x.square().sum(2)[:, :, None] + y.square().sum(2)[:, None, :]
    return torch.baddbmm(norms, x, y.transpose(1, 2), alpha=-2).clamp(min=0)


def _unit(x: Tensor) -> Tensor:
    return x * (x.square().sum(2, keepdim=True) + EPSILON).rsqrt()


def logits(energy: str, x: Tensor, y: Tensor) -> Tensor:
    """x, y: [P, B, R] -> [P, B, B], entry (i, j) the energy of x_i with y_j."""
    if energy == "l2":  # -sqrt(sum (x - y)^2 + eps)
        return -(squared_distances(x, y) + EPSILON).sqrt()
    if energy == "l2_no_sqrt":
        return -squared_distances(x, y)
    if energy == "l1":  # -sum |x - y|
        return -torch.cdist(x, y, p=1.0)
    if energy == "dot":
        return torch.bmm(x, y.transpose(1, 2))
    if energy in ("cos", "cosine"):
        return torch.bmm(_unit(x), _unit(y).transpose(1, 2))
    (x1, x2), (y1, y2) = x.chunk(2, dim=2), y.chunk(2, dim=2)
    asymmetric = (x1[:, :, None] - y1[:, None]).relu().amax(3)
    return -(asymmetric + (squared_distances(x2, y2) + EPSILON).sqrt())


def pairs(energy: str, x: Tensor, y: Tensor) -> Tensor:
    """x, y: [P, B, R] -> [P, B], the diagonal of ``logits`` without the rest."""
    if energy == "l2":
        return -((x - y).square().sum(2) + EPSILON).sqrt()
    if energy == "l2_no_sqrt":
        return -(x - y).square().sum(2)
    if energy == "l1":
        return -(x - y).abs().sum(2)
    if energy == "dot":
        return (x * y).sum(2)
    if energy in ("cos", "cosine"):
        return (_unit(x) * _unit(y)).sum(2)
    (x1, x2), (y1, y2) = x.chunk(2, dim=2), y.chunk(2, dim=2)  # MRN, https://arxiv.org/abs/2208.08133:
    # d = max_k relu(x1 - y1)_k + sqrt(sum (x2 - y2)^2 + eps), which need not be symmetric
    return -((x1 - y1).relu().amax(2) + ((x2 - y2).square().sum(2) + EPSILON).sqrt())
