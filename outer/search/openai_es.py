"""Evolution strategy of OpenAI: mirrored pairs, centred ranks, Adam and weight decay.

https://arxiv.org/abs/1703.03864 (Salimans et al. 2017), with the numbers of its published code. Symbols: n pairs,
D numbers of a world, theta [D] the centre, sigma the fixed standard deviation of a perturbation.

``agents.gtn.num_workers`` is n, so a generation has 2 n worlds. ``noise_std`` is sigma. ``search: nes`` with
``estimator: antithetic`` differs in four ways: its Adam forgets faster (0.99), both agents of a pair can share their
random numbers, iterates can be averaged, and weights decay outside of Adam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict

import numpy as np
import torch
from torch import Tensor

from envolve.core.option import option
from envolve.outer.search.search import Search
from envolve.outer.search.stored import count, vector
from envolve.outer.search.transforms import centred_ranks

ADAM_EPS = 1e-8


@dataclass(frozen=True)
class OpenAIESSection:
    """Settings of ``search: openai_es``, the section ``agents.openai_es``."""

    lr: float = option(0.01, "Adam's learning rate", gt=0)
    weight_decay: float = option(0.005, "pull towards 0, part of Adam's gradient (l2coeff of the published code)", ge=0)
    beta1: float = option(0.9, "Adam's forgetting of the direction", ge=0, lt=1)
    beta2: float = option(0.999, "Adam's forgetting of the squares", ge=0, lt=1)


class OpenAIES(Search):
    """Adam's ascent along the difference of mirrored worlds."""

    section_class = OpenAIESSection
    mirrored = True
    nes_keys = {
        "step_size": "openai_es has agents.openai_es.lr",
        "nes_step_size": "openai_es has agents.openai_es.lr",
        "mirrored_sampling": "openai_es always mirrors: num_workers pairs",
        "common_random_numbers": "every agent of openai_es has its own seed",
        "score_transform_type": "openai_es has centred ranks",
        "weight_decay": "openai_es has agents.openai_es.weight_decay",
    }

    def __init__(self, dim, mask, init, seed, section, settings=None) -> None:
        super().__init__(dim, mask, init, seed, section, settings or OpenAIESSection())
        self.theta = init.double()
        self.moment1 = torch.zeros(dim, dtype=torch.float64)
        self.moment2 = torch.zeros(dim, dtype=torch.float64)
        self.updates = 0

    def ask(self) -> Tensor:
        self.steps = self.noise(self.section.num_workers).double()  # eps_i ~ N(0, I), [n, D]
        moved = self.section.noise_std * self.steps
        return torch.cat([self.theta + moved, self.theta - moved]).float()  # theta + sigma eps_i, theta - sigma eps_i

    def tell(self, scores: np.ndarray) -> None:
        s, n = self.settings, self.section.num_workers
        u = centred_ranks(scores)  # [2 n], in [-0.5, 0.5]
        weights = torch.from_numpy(u[:n] - u[n:])[:, None]
        g = (weights * self.steps).sum(0) / (2 * n)  # g = 1/(2 n) sum_i (u_i+ - u_i-) eps_i
        g = g - s.weight_decay * self.mask * self.theta  # - c theta
        self.updates += 1
        self.moment1 = s.beta1 * self.moment1 + (1 - s.beta1) * g  # m <- b1 m + (1 - b1) g
        self.moment2 = s.beta2 * self.moment2 + (1 - s.beta2) * g * g  # v <- b2 v + (1 - b2) g^2
        m = self.moment1 / (1 - s.beta1**self.updates)
        v = self.moment2 / (1 - s.beta2**self.updates)
        self.theta = self.theta + s.lr * m / (v.sqrt() + ADAM_EPS)  # theta <- theta + lr m^ / (sqrt(v^) + eps)
        self.centre = self.theta.float()

    def state(self) -> Dict[str, Any]:
        return {"theta": self.theta, "moment1": self.moment1, "moment2": self.moment2, "updates": self.updates}

    def restore(self, state: Dict[str, Any]) -> None:
        self.theta = vector(state, "theta", self.dim)
        self.moment1, self.moment2 = vector(state, "moment1", self.dim), vector(state, "moment2", self.dim)
        if bool((self.moment2 < 0).any()):
            raise ValueError("moment2: found a negative number, expected squares")
        self.updates = count(state, "updates")
        self.centre = self.theta.float()
