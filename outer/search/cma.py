"""CMA-ES: a step size adapted by its path, and a full covariance of all numbers of a world.

https://arxiv.org/abs/1604.00772 (Hansen 2016). The package cmaes adapts, see ``through_cmaes.py``. Its update holds two
arrays [lambda, D, D] at once, so memory is about (2 lambda + 8) D^2 numbers of 8 bytes. Measured: 287 MiB for D = 1,000
and lambda = 16, 2,272 MiB for D = 1,500 and lambda = 64; the formula says 305 and 2,335. Larger worlds are refused.

``agents.gtn.num_workers`` is lambda, ``noise_std`` the first sigma.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from envolve.core.option import option
from envolve.outer.config.section import GTNSection
from envolve.outer.search.search import Refusal
from envolve.outer.search.through_cmaes import ThroughCmaes, one_thread

GIB = 2**30


@dataclass(frozen=True)
class CMASection:
    """Settings of ``search: cma``, the section ``agents.cma``."""

    max_gib: float = option(4.0, "GiB of memory that its update may take; more is refused", gt=0, le=1024)


def memory(dim: int, population: int) -> int:
    """Bytes that an update takes, about."""
    return (2 * population + 8) * dim * dim * 8


class CMA(ThroughCmaes):
    """C is a matrix, float64 [D, D], stored as its upper triangle."""

    name = "cma"
    section_class = CMASection

    def __init__(self, dim, mask, init, seed, section, settings=None) -> None:
        super().__init__(dim, mask, init, seed, section, settings or CMASection())

    @classmethod
    def refusal(cls, dim: int, section: GTNSection, settings: Any) -> Optional[Refusal]:
        needed = memory(dim, section.num_workers) / GIB
        if needed > settings.max_gib:
            found = f"cma, whose covariance of {dim:,} numbers takes about {needed:.1f} GiB"
            least = max(1.0, (settings.max_gib * GIB / 8 / dim / dim - 8) / 2)
            fewer = f", or at most {int(least)} num_workers" if least >= 4 else ""
            words = f"at most {settings.max_gib:g} GiB (agents.cma.max_gib): sep_cma, which needs no matrix{fewer}"
            return Refusal("search", found, words)
        return super().refusal(dim, section, settings)

    def begin(self, mean: np.ndarray, sigma: float) -> Any:
        from cmaes import CMA as Adapting  # only where it is asked for: it is an extra, and needs Python 3.9

        made = Adapting(mean=mean, sigma=sigma, population_size=self.section.num_workers, seed=0)
        made._ESigma = np.zeros([0, 1])  # D^2 numbers of its learning rate adaptation, which is off
        return made

    def spread(self, z: np.ndarray) -> np.ndarray:
        # its own ask() multiplies matrices for every world; B and D are those of C = B D^2 B^T
        with one_thread():
            B, D = self.cma._eigen_decomposition()
            return (z * D) @ B.T  # C^(1/2) z = B D z

    def tell(self, scores: np.ndarray) -> None:
        super().tell(scores)
        C = self.cma._C
        self.cma._C = (C + C.T) / 2  # as the package does before it decomposes it: a triangle then holds all of it

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
