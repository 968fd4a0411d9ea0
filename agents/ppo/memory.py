"""What a PPO update learns from: T decisions of L members in N environments each, in one buffer.

Axes: T decisions, L members, N environments, F features, A actions.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor


class Transitions(NamedTuple):
    """Parts of transitions, float32 [T, L, N, _], in the order in which the buffer holds them. Truths are 0 or 1."""

    obs: Tensor  # s [F]
    next_obs: Tensor  # s' [F]
    out: Tensor  # the actor's output [A]
    action: Tensor  # as log-probabilities need it: [A], or [1] for a discrete one
    reward: Tensor  # [1], as all that follow
    terminated: Tensor
    over: Tensor  # terminated, or cut at a time limit
    failed: Optional[Tensor] = None  # not finite; this and the next two in worlds of this project alone
    total: Optional[Tensor] = None  # return of the episode so far
    t: Optional[Tensor] = None  # environment steps of the episode so far


def samples(part: Tensor) -> Tensor:
    """A part of transitions as a member's samples: [T, L, N, C] -> [L, C, T N]."""
    return part.permute(1, 3, 0, 2).flatten(2)


class RolloutMemory:
    """A buffer of one rollout; ``parts`` are views of it."""

    def __init__(
        self, T: int, L: int, N: int, F: int, A: int, stored: int, device: torch.device, counted: bool = False
    ) -> None:
        """stored: numbers of a stored action; counted: with failed, total and t."""
        self.widths = [F, F, A, stored, 1, 1, 1] + [1, 1, 1] * counted
        self.data = torch.zeros(T, L, N, sum(self.widths), device=device)

    @property
    def parts(self) -> Transitions:
        return Transitions(*self.data.split(self.widths, dim=3))

    def write(self, step: Tensor, row: Tensor) -> None:
        """Writes the parts of decision ``step``, int64 [1], side by side: row [L, N, W]. A CUDA graph may replay it."""
        self.data.index_copy_(0, step, row[None])

    def keep(self, index: Tensor) -> None:
        """Keeps only these members."""
        self.data = self.data[:, index].contiguous()
