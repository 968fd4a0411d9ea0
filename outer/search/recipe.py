"""How a population was drawn, so that a worker with the random seed can draw it again: a member is a few bytes then.

A recipe stands in the population that it describes. A population whose worlds are changed has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ground:
    """What all members of a generation have in common. bases: float32 [B, D], worlds before their perturbation; mask:
    float32 [D], 1 where parameters may change, 0 elsewhere. ``n`` perturbations come from (seed, generation)."""

    seed: int
    generation: int
    n: int
    noise_std: float
    bases: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Recipe:
    """rows: int32 [P, 2], for each member its base and its perturbation: 0 none, i + 1 plus the i-th, -(i + 1) minus
    it."""

    ground: Ground
    rows: Tensor

    def part(self, members: Tensor) -> Recipe:
        """The recipe of some members. members: int64 [p], their rows."""
        return Recipe(self.ground, self.rows[members])


def drawn_again(bases: Tensor, noise: Tensor, rows: Tensor) -> Tensor:
    """Worlds [p, D]. noise: [n, D], of the ground. Raises IndexError for rows that are not of it."""
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise IndexError(f"rows {list(rows.shape)}, expected [p, 2]")
    worlds = bases[rows[:, 0].long()]
    which = rows[:, 1].long()
    for sign in (1, -1):
        changed = torch.nonzero(which * sign > 0).flatten()
        eps = noise[which[changed].abs() - 1]
        worlds[changed] = worlds[changed] + eps if sign > 0 else worlds[changed] - eps
    return worlds
