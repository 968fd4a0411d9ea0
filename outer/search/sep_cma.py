"""Separable CMA-ES: a step size adapted by its path, and a variance of its own for every number of a world.

https://doi.org/10.1007/978-3-540-87700-4_30 (Ros and Hansen 2008). Memory and time grow linearly with the numbers of a
world. The package cmaes adapts, see ``through_cmaes.py``. ``agents.gtn.num_workers`` is lambda, ``noise_std`` the first
sigma.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envolve.outer.search.through_cmaes import ThroughCmaes


class SepCMA(ThroughCmaes):
    """C is diagonal, float64 [D]."""

    name = "sep_cma"

    def begin(self, mean: np.ndarray, sigma: float) -> Any:
        from cmaes import SepCMA as Adapting  # only where it is asked for: it is an extra, and needs Python 3.9

        return Adapting(mean=mean, sigma=sigma, population_size=self.section.num_workers, seed=0)

    def spread(self, z: np.ndarray) -> np.ndarray:
        return z * self.cma._eigen_decomposition()  # C^(1/2) z = sqrt(diag C) z

    def covariance(self) -> np.ndarray:
        return self.cma._C

    def set_covariance(self, stored: np.ndarray) -> None:
        self.cma._C, self.cma._D = stored, None

    def covariance_length(self) -> int:
        return len(self.cma._mean)
