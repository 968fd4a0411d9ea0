"""Separable natural evolution strategy: every number of a world has a step size of its own.

https://jmlr.org/papers/v15/wierstra14a.html (Wierstra et al. 2014, algorithm 6), first https://doi.org/10.1145/2001576.2001692
(Schaul et al. 2011). Symbols: lambda worlds, D numbers of a world, mu [D] mean, sigma [D] standard deviations.

``agents.gtn.num_workers`` is lambda, ``noise_std`` the first sigma of every number. Worlds are not mirrored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict

import numpy as np
import torch
from torch import Tensor

from envolve.core.option import option
from envolve.outer.search.search import Search
from envolve.outer.search.stored import number, vector


@dataclass(frozen=True)
class SNESSection:
    """Settings of ``search: snes``, the section ``agents.snes``."""

    lr_mean: float = option(1.0, "eta_mu: how far the mean follows its natural gradient", gt=0)
    lr_sigma: float = option(
        0.0, "eta_sigma: how far the standard deviations follow theirs; 0: (3 + ln D) / (5 sqrt(D))", ge=0, le=10
    )


def utilities(scores: np.ndarray) -> np.ndarray:
    """Utilities u of scores [lambda], higher is better -> float64 [lambda] that sum to 0. Equal scores share theirs."""
    n = len(scores)
    u = np.maximum(0.0, math.log(n / 2 + 1) - np.log(np.arange(1, n + 1)))  # max(0, log(lambda/2 + 1) - log k)
    u = u / u.sum() - 1 / n  # / sum_j(..) - 1/lambda
    order = np.argsort(-scores, kind="stable")  # k = 1 is the best
    _, inverse, count = np.unique(-scores[order], return_inverse=True, return_counts=True)
    shared = np.bincount(inverse, weights=u) / count
    out = np.empty(n)
    out[order] = shared[inverse]
    return out


class SNES(Search):
    """Follows the natural gradient of the expected utility, in the mean and in the logarithm of each sigma."""

    section_class = SNESSection
    nes_keys = {
        "step_size": "snes has agents.snes.lr_mean and lr_sigma",
        "nes_step_size": "snes has agents.snes.lr_mean and lr_sigma",
        "mirrored_sampling": "snes draws num_workers worlds and never mirrors them",
        "common_random_numbers": "snes has no pairs",
        "score_transform_type": "snes has its own utilities of ranks",
    }

    def __init__(self, dim, mask, init, seed, section, settings=None) -> None:
        super().__init__(dim, mask, init, seed, section, settings or SNESSection())
        self.mean = init.double()
        self.sigma = torch.full((dim,), float(section.noise_std), dtype=torch.float64) * mask
        free = max(1, int(mask.sum()))
        self.lr_sigma = self.settings.lr_sigma or (3 + math.log(free)) / (5 * math.sqrt(free))

    def ask(self) -> Tensor:
        self.steps = self.noise(self.section.num_workers).double()  # s_k ~ N(0, I), [lambda, D]
        return (self.mean + self.sigma * self.steps).float()  # z_k = mu + sigma s_k

    def tell(self, scores: np.ndarray) -> None:
        u, s = torch.from_numpy(utilities(scores))[:, None], self.steps
        g_mean = (u * s).sum(0)  # nabla_mu = sum_k u_k s_k
        g_sigma = (u * (s * s - 1)).sum(0) * self.mask  # nabla_sigma = sum_k u_k (s_k^2 - 1)
        self.mean = self.mean + self.settings.lr_mean * self.sigma * g_mean  # mu <- mu + eta_mu sigma nabla_mu
        self.sigma = self.sigma * torch.exp(self.lr_sigma / 2 * g_sigma)  # sigma <- sigma exp(eta_sigma/2 nabla_sigma)
        self.centre = self.mean.float()

    def state(self) -> Dict[str, Any]:
        return {"mean": self.mean, "sigma": self.sigma, "lr_sigma": self.lr_sigma}

    def restore(self, state: Dict[str, Any]) -> None:
        self.mean, self.sigma = vector(state, "mean", self.dim), vector(state, "sigma", self.dim)
        self.lr_sigma = number(state, "lr_sigma")
        self.centre = self.mean.float()
