"""States of an expert that a bandit stores: a few rows that stand for all. Python 3.8."""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.core import rng


def chosen(states: Tensor, count: int, key: int) -> Tensor:
    """``count`` rows of states [n, F] that a bandit draws from with equal chance, float32 [count, F].

    If no more than ``count`` of the states are distinct, each is there, and the frequent ones several times. Else they
    are random ones, no row twice while there are enough.
    """
    rows, counts = torch.unique(states, dim=0, return_counts=True)
    if len(rows) <= count:
        return rows.repeat_interleave(slots(counts, count), 0)
    generator = rng.generator(key)
    return states[torch.randperm(len(states), generator=generator)[:count]]


def slots(counts: Tensor, total: int) -> Tensor:
    """How many of ``total`` slots each state gets, one at least, int64 [k]. The others go, one by one, to the state
    whose count divided by its slots is largest (D'Hondt's rule). counts: int64 [k <= total]."""
    given = torch.ones_like(counts)
    for _ in range(total - len(counts)):
        given[torch.argmax(counts / given)] += 1
    return given
