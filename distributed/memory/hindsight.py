"""The memory of contrastive RL: what a drawn row led to is replaced by what a later row of its trajectory led to.

The later row is k - 1 rows further, P(k) in proportion to gamma^k for 1 <= k <= K, K being the rows from this one on
(itself included) to the end of the episode or of the chunk, whichever comes first. A trajectory that goes on in the
worker's next turn counts as cut off between them. Across turns it would be wrong as often as not: no row says that an
episode was dropped (at a checkpoint of lockstep, by a curriculum, by a restart), and other workers' chunks lie between.
Since rows say what they led to, even a trajectory's last one has a goal. What this costs: goals further ahead than a
turn is long, so turns should be long beside 1 / (1 - gamma) steps.

A chunk's rows follow each other in the ring, and the oldest go first; so whatever comes after a living row lives.

Axes: P members, T rows of a chunk, R of the ring, W columns, B minibatch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.agents.goal.crl_replay import steps_ahead
from envolve.core import rng
from envolve.distributed.memory.replay import SharedReplay
from envolve.distributed.memory.rows import Widths

FUTURE = 1  # stream of the steps ahead, under that of the replay


class HindsightReplay(SharedReplay):
    def __init__(self, keys: Tensor, capacity: int, widths: Widths, batch_size: int, gamma: float) -> None:
        """gamma: discount that determines how far ahead goals lie."""
        self.gamma = torch.tensor(gamma, dtype=torch.float64)
        super().__init__(keys, capacity, widths, batch_size)
        self.future_key = rng.fold(self.key, FUTURE)

    def clear(self, written: int = 0) -> None:
        super().clear(written)
        self.left = torch.zeros(len(self.key), self.capacity, dtype=torch.int32)  # K of each row of the ring

    def append(self, rows: Tensor) -> None:
        T = rows.shape[1]
        at = (self.written + torch.arange(T)) % self.capacity
        kept = slice(max(0, T - self.capacity), T)  # of a chunk longer than the memory
        self.left[:, at[kept]] = rows_left(rows)[:, kept]
        super().append(rows)

    def batch(self, draw: Tensor, number: int) -> Tensor:
        """See ``SharedReplay.batch``."""
        index, base = self.ring.index(draw), self.ring.base[:, None]
        rows, later = self.ring.gather(index), self.later(index - base, number)
        rows[:, self.widths.led_to] = self.ring.gather(later + base)[:, self.widths.led_to]
        return rows

    def later(self, row: Tensor, number: int) -> Tensor:
        """Goal rows for the ring rows int64 [P, B] that gradient step ``number`` drew."""
        first = rng.advance(self.future_key, torch.tensor(number * 65536))[:, None]
        u = rng.uniform(first, torch.arange(row.shape[1]))
        left = self.left.gather(1, row).long()
        return (row + steps_ahead(u, self.gamma, left) - 1) % self.capacity


def rows_left(rows: Tensor) -> Tensor:
    """Steps K left for each row of a chunk. rows: float32 [P, T, W] -> int32 [P, T]."""
    T = rows.shape[1]
    end = (rows[..., -3] > 0) | (rows[..., -2] > 0)  # terminated, truncated
    time = torch.arange(T).expand_as(end)
    # of each row the first end from it on: the running minimum from the back; without one the chunk's last row
    last = torch.where(end, time, T - 1).flip(1).cummin(1).values.flip(1)
    return (last - time + 1).int()
