"""A search of one's own: a (mu/mu, lambda) evolution strategy with its step size adapted by the path it has taken.

In a configuration: ``search: my_search.py:MyES``. ``num_workers`` of ``agents.gtn`` is lambda, ``noise_std`` the first
step size. https://arxiv.org/abs/1604.00772 explains the terms.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from envolve import Search


class MyES(Search):
    """Weighted recombination of the better half, and cumulative step-size adaptation (CSA)."""

    def __init__(self, dim, mask, init, seed, section) -> None:
        super().__init__(dim, mask, init, seed, section)
        self.sigma = section.noise_std
        self.path = torch.zeros(dim)
        count, best = section.num_workers, max(1, section.num_workers // 2)
        weights = torch.log(torch.tensor(best + 0.5)) - torch.arange(1, best + 1).log()
        self.weights = weights / weights.sum()
        mu = 1 / float((self.weights**2).sum())
        n = float(mask.sum())
        self.rate = (mu + 2) / (n + mu + 5)  # of the path
        self.damping = 1 + 2 * max(0.0, math.sqrt((mu - 1) / (n + 1)) - 1) + self.rate
        self.normal, self.expected, self.count = math.sqrt(self.rate * (2 - self.rate) * mu), math.sqrt(n), count

    def ask(self) -> Tensor:
        self.steps = self.noise(self.count)
        return self.centre + self.sigma * self.steps

    def tell(self, scores: np.ndarray) -> None:
        best = torch.from_numpy(np.argsort(-scores, kind="stable")[: len(self.weights)].copy())
        step = (self.weights[:, None] * self.steps[best]).sum(0)
        self.centre = self.centre + self.sigma * step
        self.path = (1 - self.rate) * self.path + self.normal * step
        self.sigma *= math.exp((self.rate / self.damping) * (float(self.path.norm()) / self.expected - 1))

    def state(self) -> dict:
        return {"centre": self.centre, "sigma": self.sigma, "path": self.path}

    def restore(self, state: dict) -> None:
        self.centre, self.sigma, self.path = state["centre"], state["sigma"], state["path"]
