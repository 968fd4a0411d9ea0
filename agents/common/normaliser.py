"""Running mean and variance of what a candidate observes and of what it is paid, in PyTorch; the compiled twin is in
``agents/kernels/shaped/ppo.py``.

Reward functions and observations of a population may differ in scale by a factor of thousands, and one learning rate
has to serve them all. As in Gymnasium's NormalizeObservation and NormalizeReward
(https://gymnasium.farama.org/api/wrappers/reward_wrappers/) a feature becomes (x - mean) / sqrt(variance + 1e-8), and a
reward is divided by the deviation of the discounted return; both are clipped. Unlike there the numbers stay as they are
during a rollout: they are sums over its samples that are merged into the running ones at its end.

Axes: L members, K features.
"""

from __future__ import annotations

from typing import Dict, Mapping

import torch
from torch import Tensor

EPSILON = 1e-8  # added to a variance
CLIP = 10.0  # largest normalised feature or reward


class Moments:
    """Running mean and variance of K features for each of L members."""

    def __init__(self, L: int, K: int, device: torch.device) -> None:
        zeros = torch.zeros(L, K, dtype=torch.float64, device=device)
        self.counted = torch.zeros((), dtype=torch.float64, device=device)  # ``count``, which a CUDA graph reads
        self.count = 0
        self.mean, self.squares = zeros, zeros.clone()  # squares: summed squares of the differences from the mean
        self.new = 0  # samples added since
        self.first, self.second = zeros.clone(), zeros.clone()  # sums of their differences from ``mean``, and squared

    @property
    def count(self) -> int:
        """Number of samples merged so far, per member."""
        return self._count

    @count.setter
    def count(self, count: int) -> None:
        self._count = count
        self.counted.fill_(count)

    def keep(self, index: Tensor) -> None:
        for name in ("mean", "squares", "first", "second"):
            setattr(self, name, getattr(self, name)[index])

    def add(self, x: Tensor) -> None:
        """Adds samples x: [L, B, K]."""
        d = x.double() - self.mean[:, None]
        self.first += d.sum(1)
        self.second += d.square().sum(1)
        self.new += x.shape[1]

    def merge(self) -> None:
        """Merges: with d_i = x_i - old mean and n samples in all, mean += sum d / n, squares += sum d^2 - (sum d)^2 /
        n."""
        self.count += self.new
        self.mean += self.first / self.count
        self.squares += (self.second - self.first.square() / self.count).clamp(min=0)
        self.first.zero_(), self.second.zero_()
        self.new = 0

    @property
    def scale(self) -> Tensor:
        """1 / sqrt(variance + epsilon), float32 [L, K]; 1 before the first merge."""
        scale = (self.squares / self.counted.clamp(min=1) + EPSILON).rsqrt()
        return torch.where(self.counted > 0, scale, 1.0).float()

    def state_dict(self) -> Dict[str, Tensor]:
        return {
            "moments": torch.stack((self.mean, self.squares, self.first, self.second)),
            "samples": torch.tensor([self.count, self.new]),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for part, value in zip((self.mean, self.squares, self.first, self.second), state["moments"].unbind()):
            part.copy_(value)
        self.count, self.new = state["samples"].tolist()

    def normalise(self, x: Tensor) -> Tensor:
        """Normalises x: float32 [L, B, K]."""
        return ((x - self.mean.float()[:, None]) * self.scale[:, None]).clamp(-CLIP, CLIP)
