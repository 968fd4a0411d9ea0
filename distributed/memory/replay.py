"""Replay buffer filled by all collectors: transitions of every member in a ring, sampled uniformly.

Oldest first out, capacity in transitions. Draws are counted (``agents/common/replay.py``): gradient step u of a member
gets the same rows for the same key and the same content, whatever process asks, how often, and how many steps at a
time.

Axes: P members, T rows of a chunk, W columns, B minibatch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.agents.common.replay import Replay
from envolve.core import rng
from envolve.distributed.memory.rows import Widths


class SharedReplay:
    def __init__(self, keys: Tensor, capacity: int, widths: Widths, batch_size: int) -> None:
        """keys: int64 [P], random keys of the members; capacity: transitions per member."""
        self.key, self.capacity, self.batch_size = rng.fold(keys, rng.REPLAY), capacity, batch_size
        self.widths = widths
        self.clear()

    def clear(self, written: int = 0) -> None:
        """Empties the buffer and sets the position to that after this many writes. Append ``capacity`` rows before
        sampling."""
        self.ring = Replay(torch.full((len(self.key),), self.capacity), self.widths.row)
        self.ring.writes = written
        self.ring.written.fill_(written)

    @property
    def written(self) -> int:
        """Transitions written per member so far, overwritten ones included."""
        return self.ring.writes

    def check(self, rows: Tensor) -> None:
        """Raises ValueError unless the rows fit these members and this environment."""
        P, W = len(self.key), self.widths.row
        if rows.ndim != 3 or rows.shape[::2] != (P, W) or rows.dtype != torch.float32:
            raise ValueError(f"a chunk: found {rows.dtype} {list(rows.shape)}, expected torch.float32 [{P}, T, {W}]")
        if not bool(torch.isfinite(rows).all()):
            raise ValueError("a chunk: found NaN or infinite numbers of an environment, expected finite ones")

    def append(self, rows: Tensor) -> None:
        """Appends rows: float32 [P, T, W]."""
        for part in rows.split(self.capacity, dim=1):
            self.ring.make_room(part.shape[1])
            self.ring.write_many(part)

    def sample(self, first: int, count: int) -> Tensor:
        """Minibatches of gradient steps first .. first + count - 1: float32 [count, P, W, B]. Raises RuntimeError if
        the buffer is empty."""
        if not self.written:
            raise RuntimeError("the memory is empty")
        return torch.stack([self.batch(draw, number) for number, draw in enumerate(self.draws(first, count), first)])

    def draws(self, first: int, count: int) -> Tensor:
        """Random bits of these gradient steps, int64 [count, P, B]."""
        return self.ring.draws(self.key, torch.full_like(self.key, first), count, self.batch_size)

    def batch(self, draw: Tensor, number: int) -> Tensor:
        """Minibatch of gradient step ``number``, float32 [P, W, B]. draw: its random bits, int64 [P, B]."""
        return self.ring.sample(draw)
