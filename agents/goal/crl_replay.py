"""Replay buffer of whole trajectories for hindsight goals.

One ring of R rows for each environment; a row is one decision. Fields are kept apart, by name: contrastive RL stores
state and action; others add what they need (next state, commanded goal, termination). Nothing is stored twice for its
goals: a goal is what a later row of the same trajectory achieved, found when a batch is drawn. An index of rows stands
for member, environment and time in one int64.

A trajectory is numbered when it begins, and its last row so far is noted under that number modulo R, which no two
living trajectories share (R rows hold at most R of them). So the distance from a row to the end of its trajectory is
two lookups, whatever the episodes' lengths.

Axes: P members, R rows, N environments, B batch.
"""

from __future__ import annotations

from typing import Dict, Mapping

import torch
from torch import Tensor

from envolve.core import rng


def steps_ahead(u: Tensor, discount: Tensor, left: Tensor) -> Tensor:
    """Samples k with P(k) in proportion to discount^k for 1 <= k <= left, 0 where left is 0: the inverse of the
    truncated geometric distribution, k = ceil(log(1 - u (1 - discount^left)) / log discount). u: uniform in [0, 1)."""
    d = discount.double()
    k = (torch.log1p(u.double() * (d**left - 1)) / d.log()).ceil().long()
    return torch.minimum(k.clamp(min=1), left)  # u = 0 gives k = 0, and rounding could give left + 1


class TrajectoryReplay:
    """Ring buffers in step with each other: the d-th write of every environment goes to row d modulo R."""

    def __init__(self, P: int, N: int, rows: int, fields: Mapping[str, int], device: torch.device) -> None:
        """fields: name -> numbers per row, all float32."""
        self.P, self.N, self.R = P, N, rows
        self.fields = {name: torch.zeros(P, rows, N, width, device=device) for name, width in fields.items()}
        self.number = torch.zeros(P, rows, N, dtype=torch.int64, device=device)  # of the row's trajectory
        self.last = torch.zeros(P, rows, N, dtype=torch.int64, device=device)  # [number % R]: its last write so far
        self.current = torch.zeros(P, N, dtype=torch.int64, device=device)  # number of the trajectory being written
        self.written = torch.zeros((), dtype=torch.int64, device=device)  # a tensor, so that graphs count too
        self.base = (torch.arange(P, device=device) * rows * N)[:, None]  # of a member's rows among all

    def write(self, row: Mapping[str, Tensor]) -> None:
        """Writes one row per environment: name -> [P, N, width]."""
        at = (self.written % self.R).view(1)
        for name, value in row.items():
            self.fields[name].index_copy_(1, at, value.unsqueeze(1))
        self.number.index_copy_(1, at, self.current.unsqueeze(1))
        self.last.scatter_(1, (self.current % self.R).unsqueeze(1), self.written.expand(self.P, 1, self.N))
        self.written += 1

    def end(self, over: Tensor) -> None:
        """Ends trajectories after a write: over: bool [P, N]."""
        self.current += over

    # ----------------------------------------------------------------------------------------------------- drawing

    def uniform_rows(self, key: Tensor, draw: Tensor, batch: int) -> Tensor:
        """Samples rows uniformly with replacement: index int64 [P, B]. key: int64 [P]; draw: int64 [P], the number of
        this batch: sample i takes counter 2 (65536 draw + i) here and the next one in ``future``."""
        stored = self.written.clamp(max=self.R) * self.N
        bits = rng.high(*self._counters(key, draw, batch, 0))
        return rng.scaled(bits, stored) + self.base

    def future(self, index: Tensor, discount: Tensor, key: Tensor, draw: Tensor) -> Tensor:
        """For each row, a row k steps later in its trajectory, with P(k) in proportion to discount^k for 1 <= k <= K,
        where K is the number of steps to the trajectory's last row. The last row itself (K = 0) is returned as it is.
        index: int64 [P, B]; discount: [P] -> index."""
        u = rng.uniform(*self._counters(key, draw, index.shape[1], 1))
        return self._later(index, steps_ahead(u, discount[:, None], self.steps_left(index)))

    def final(self, index: Tensor) -> Tensor:
        """Last row so far of each row's trajectory."""
        return self._later(index, self.steps_left(index))

    def steps_left(self, index: Tensor) -> Tensor:
        """Number of steps K from each row to the last stored one of its trajectory. index and result: int64 [P, B]."""
        flat = index.reshape(-1)
        row, env = index // self.N % self.R, index % self.N
        slot = self.number.view(-1)[flat].view(index.shape) % self.R
        last = self.last.view(-1)[self.base + slot * self.N + env]
        newest = self.written - 1
        time = newest - (newest - row) % self.R  # when it was written: the last time that the ring passed this row
        return last - time

    def gather(self, name: str, index: Tensor) -> Tensor:
        """Gathers the fields at index: int64 [P, B] -> [P, B, width]."""
        field = self.fields[name]
        return field.view(-1, field.shape[3]).index_select(0, index.reshape(-1)).view(*index.shape, -1)

    def _later(self, index: Tensor, k: Tensor) -> Tensor:
        row = (index // self.N % self.R + k) % self.R
        return self.base + row * self.N + index % self.N

    def _counters(self, key: Tensor, draw: Tensor, batch: int, which: int) -> tuple:
        first = rng.advance(key, draw * (2 * 65536) + which)
        return first[:, None], 2 * torch.arange(batch, device=key.device)

    # ------------------------------------------------------------------------------------------------ keeping a run

    def state_dict(self) -> Dict[str, Tensor]:
        """State without the empty rows."""
        stored = min(int(self.written), self.R)
        rows = {"field." + name: field[:, :stored].clone() for name, field in self.fields.items()}
        return {
            **rows,
            "number": self.number[:, :stored].clone(),
            "last": self.last.clone(),
            "current": self.current.clone(),
            "written": self.written.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        stored = state["number"].shape[1]
        for name, field in self.fields.items():
            field[:, :stored] = state["field." + name].to(field.device)
        self.number[:, :stored] = state["number"].to(self.number.device)
        for name in ("last", "current", "written"):
            getattr(self, name).copy_(state[name])
