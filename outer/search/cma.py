"""CMA-ES: a step size adapted by its path, and a full covariance of all numbers of a world.

https://arxiv.org/abs/1604.00772 (Hansen 2016), whose equations are named below. The package cmaes sets the constants
(``through_cmaes.py``). Its update holds two arrays [lambda, D, D] at once, 2.2 GiB for D = 1,500 and lambda = 64; the
update here is the same in products of matrices. Memory is about MATRICES D^2 numbers of 8 bytes; what needs more than
``max_gib`` is refused.

``agents.gtn.num_workers`` is lambda, ``noise_std`` the first sigma.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional, Tuple

import numpy as np

from envolve.core.option import option
from envolve.outer.config.section import GTNSection
from envolve.outer.search.search import Refusal
from envolve.outer.search.through_cmaes import ThroughCmaes, one_thread

GIB = 2**30
MATRICES = 12  # [D, D] at once, measured, with LAPACK's own
MOST = 1e32  # a step size, as in the package
LEAST = 1e-8  # of a standard deviation and a squared length, as in the package


@dataclass(frozen=True)
class CMASection:
    """Settings of ``search: cma``, the section ``agents.cma``."""

    max_gib: float = option(4.0, "GiB of memory that its update may take; more is refused", gt=0, le=1024)


def memory(dim: int) -> int:
    """Bytes that an update takes, about."""
    return MATRICES * dim * dim * 8


class CMA(ThroughCmaes):
    """C is a matrix, float64 [D, D], stored as its upper triangle."""

    name = "cma"
    section_class = CMASection

    def __init__(self, dim, mask, init, seed, section, settings=None) -> None:
        super().__init__(dim, mask, init, seed, section, settings or CMASection())

    @classmethod
    def refusal(cls, dim: int, section: GTNSection, settings: Any) -> Optional[Refusal]:
        needed = memory(dim) / GIB
        if needed > settings.max_gib:
            found = f"cma, whose covariance of {dim:,} numbers takes about {needed:.1f} GiB"
            words = f"at most {settings.max_gib:g} GiB (agents.cma.max_gib): sep_cma, which needs no matrix"
            return Refusal("search", found, words)
        return super().refusal(dim, section, settings)

    def begin(self, mean: np.ndarray, sigma: float) -> Any:
        from cmaes import CMA as Adapting  # only where it is asked for: it is an extra, and needs Python 3.9

        made = Adapting(mean=mean, sigma=sigma, population_size=self.section.num_workers, seed=0)
        made._ESigma = np.zeros([0, 1])  # D^2 numbers of its learning rate adaptation, which is off
        return made

    def _decomposed(self) -> Tuple[np.ndarray, np.ndarray]:
        """B [D, D] and d [D] of C = B d^2 B^T, once per generation."""
        c = self.cma
        if c._B is None:
            squares, c._B = np.linalg.eigh(c._C)
            c._D = np.sqrt(np.where(squares < 0, LEAST, squares))
            if (squares < 0).any():
                c._C = (c._B * c._D**2) @ c._B.T
        return c._B, c._D

    def spread(self, z: np.ndarray) -> np.ndarray:
        with one_thread():
            B, d = self._decomposed()
            return (z * d) @ B.T  # C^(1/2) z = B d z

    def tell(self, scores: np.ndarray) -> None:
        with one_thread():
            self._update(self.points[np.argsort(-scores, kind="stable")])
        self._move()

    def _update(self, points: np.ndarray) -> None:
        """points: worlds of the generation, float64 [lambda, D], best first."""
        c, n = self.cma, len(self.cma._mean)
        B, d = self._decomposed()
        c._B = c._D = None
        c._g += 1
        y = (points - c._mean) / c._sigma
        y_w = c._weights[: c._mu] @ y[: c._mu]  # eq. 41
        c._mean = c._mean + c._cm * c._sigma * y_w  # eq. 42
        # eq. 43: the path of the step size, with C^(-1/2) = B d^-1 B^T
        c._p_sigma = (1 - c._c_sigma) * c._p_sigma
        c._p_sigma += math.sqrt(c._c_sigma * (2 - c._c_sigma) * c._mu_eff) * (B @ (B.T @ y_w / d))
        length = np.linalg.norm(c._p_sigma)
        c._sigma = min(c._sigma * np.exp(c._c_sigma / c._d_sigma * (length / c._chi_n - 1)), MOST)  # eq. 44
        settled = length / math.sqrt(1 - (1 - c._c_sigma) ** (2 * (c._g + 1)))
        h = float(settled < (1.4 + 2 / (n + 1)) * c._chi_n)  # 0: the path is too long to be chance
        c._pc = (1 - c._cc) * c._pc + h * math.sqrt(c._cc * (2 - c._cc) * c._mu_eff) * y_w  # eq. 45
        # eq. 46: negative weights by the length of C^(-1/2) y, which is that of d^-1 B^T y
        far = n / (np.sum((y @ B / d) ** 2, axis=1) + LEAST)
        weights = c._weights * np.where(c._weights >= 0, 1.0, far)
        # eq. 47
        kept = 1 + c._c1 * (1 - h) * c._cc * (2 - c._cc) - c._c1 - c._cmu * np.sum(c._weights)
        C = kept * c._C + c._c1 * np.outer(c._pc, c._pc) + c._cmu * ((y.T * weights) @ y)
        c._C = (C + C.T) / 2  # a triangle holds all of it

    def covariance(self) -> np.ndarray:
        return self.cma._C[np.triu_indices(len(self.cma._mean))]

    def set_covariance(self, stored: np.ndarray) -> None:
        n = len(self.cma._mean)
        rows, columns = np.triu_indices(n)
        C = np.empty((n, n))
        C[rows, columns] = stored
        C[columns, rows] = stored
        self.cma._C, self.cma._B, self.cma._D = C, None, None

    def covariance_length(self) -> int:
        n = len(self.cma._mean)
        return n * (n + 1) // 2
