"""Replay buffers of a population: one ring buffer per member, all in one tensor."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import Hyper
from envolve.core import rng

FIRST_ROWS = 1024  # rows per member allocated at first; doubled when they are full


def capacity(hyper: Hyper, max_steps: int) -> np.ndarray:
    """Capacity of each member's ring, int64 [P]: rb_size, or the number of transitions of the longest training if
    smaller."""
    decisions = hyper.section.train_episodes * -(-max_steps // hyper.section.same_action_num)
    budget = np.where(hyper["train_steps"] > 0, hyper["train_steps"], decisions)
    return np.minimum(np.minimum(budget, decisions), hyper.section.rb_size)


class Replay:
    """Transitions as flat float32 rows ``[P, rows, width]``; one ``index_select`` fetches the batches of all members.

    Members write in step: the d-th write of each goes to its row d modulo its capacity. Memory is allocated as it is
    needed: FIRST_ROWS rows per member, doubled (copying) when they are full, never more than the largest capacity.
    """

    def __init__(self, capacity: Tensor, width: int) -> None:
        """capacity: int64 [P], rows of each member's ring."""
        self.capacity = capacity
        self.largest = int(capacity.max())
        self.rows = torch.empty(len(capacity), min(FIRST_ROWS, self.largest), width, device=capacity.device)
        self.written = torch.zeros((), dtype=torch.int64, device=capacity.device)  # a tensor, so that graphs count too
        self.writes = 0  # those that room was made for
        self._index()

    def _index(self) -> None:
        members, rows, width = self.rows.shape
        self.flat = self.rows.view(-1, width)
        self.base = torch.arange(members, device=self.rows.device) * rows

    def keep(self, members: Tensor) -> None:
        """Keeps only these members (indices)."""
        self.capacity, self.rows = self.capacity[members], self.rows[members]
        self._index()

    def make_room(self, count: int = 1) -> bool:
        """Makes room for count rows; call it before every write. Returns whether the memory has moved."""
        members, rows, width = self.rows.shape
        self.writes += count
        if self.writes <= rows or rows == self.largest:
            return False
        grown = torch.empty(members, min(max(2 * rows, self.writes), self.largest), width, device=self.rows.device)
        grown[:, :rows] = self.rows
        self.rows = grown
        self._index()
        return True

    def write(self, transition: Tensor) -> None:
        """Writes one transition per member: [P, width]. Call ``make_room`` first."""
        self.flat.index_copy_(0, self.base + self.written % self.capacity, transition)
        self.written += 1

    def write_many(self, transitions: Tensor) -> None:
        """Writes transitions [P, count, width] in order. count is at most the smallest capacity; otherwise the order of
        two writes to one row would be undefined."""
        count = transitions.shape[1]
        number = self.written + torch.arange(count, device=self.rows.device)
        index = self.base[:, None] + number % self.capacity[:, None]
        self.flat.index_copy_(0, index.view(-1), transitions.flatten(0, 1))
        self.written += count

    def draws(self, key: Tensor, update: Tensor, count: int, batch: int) -> Tensor:
        """Random bits for sampling in updates update .. update + count - 1 -> int64 [count, P, batch].

        key, update: int64 [P]. Row i of update u is drawn by counter 65536 u + i, so that a batch may be cut after any
        row. Hashing many updates at once costs a fraction of hashing each.
        """
        later = update + torch.arange(count, device=key.device)[:, None]
        return rng.high(rng.advance(key, later * 65536).unsqueeze(2), torch.arange(batch, device=key.device))

    def sample(self, draw: Tensor) -> Tensor:
        """Samples uniformly with replacement. draw: int64 [P, batch], of one update -> [P, width, batch],
        feature-major."""
        return self.gather(self.index(draw))

    def index(self, draw: Tensor) -> Tensor:
        """Indices of the sampled rows in ``flat``, int64 [P, batch]."""
        stored = torch.minimum(self.capacity, self.written)[:, None]
        return rng.scaled(draw, stored).add_(self.base[:, None])

    def gather(self, index: Tensor) -> Tensor:
        """Gathers rows of ``flat`` -> [P, width, batch]."""
        members, batch = index.shape
        return self.flat.index_select(0, index.view(-1)).view(members, batch, -1).transpose(1, 2).contiguous()
