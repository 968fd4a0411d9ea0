"""What ``cma`` and ``sep_cma`` share: the package cmaes adapts, this project draws random numbers and keeps the state.

https://arxiv.org/abs/2402.01373 (Nomura and Shibata 2024) describes the package. It is needed for these two alone.

Its objects hold a generator that nothing reads here: worlds are drawn from :meth:`Search.generator`. What adapts is
stored number by number, so that a resumed run ends in the same bytes. NumPy's matrices are multiplied by one thread,
for their last bits depend on the number of threads. Frozen numbers of a world are left out.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from typing import Any, ContextManager, Dict, Optional

import numpy as np
import torch
from torch import Tensor

from envolve.outer.config.section import GTNSection
from envolve.outer.search.search import Refusal, Search, SearchRefused
from envolve.outer.search.stored import count, number, vector

LEAST = 4  # worlds per generation: with fewer, recombination has one parent and learns no covariance
PACKAGES = ("cmaes", "threadpoolctl")
INSTALL = f"pip install 'envolve[cma]', or pip install {' '.join(PACKAGES)}"


@lru_cache(maxsize=None)
def _threads() -> Any:
    from threadpoolctl import ThreadpoolController  # only where it is asked for: it is an extra

    return ThreadpoolController()


def one_thread() -> ContextManager[Any]:
    """Context in which NumPy's linear algebra has one thread."""
    return _threads().limit(limits=1, user_api="blas")


class ThroughCmaes(Search):
    """Base of the two. D: numbers that may move. lambda: ``num_workers`` worlds per generation, never mirrored."""

    name = ""
    nes_keys = {
        key: f"{{name}} {why}"
        for key, why in (
            ("step_size", "adapts its own step size; noise_std is the first one"),
            ("nes_step_size", "adapts its own step size; noise_std is the first one"),
            ("mirrored_sampling", "draws num_workers worlds and never mirrors them"),
            ("common_random_numbers", "has no pairs"),
            ("score_transform_type", "has its own weights of ranks"),
        )
    }

    def __init__(self, dim, mask, init, seed, section, settings=None) -> None:
        super().__init__(dim, mask, init, seed, section, settings)
        self.free = mask.bool()
        refusal = self.refusal(int(self.free.sum()), section, settings)
        if refusal is not None:
            raise SearchRefused(f"agents.gtn.{refusal.key}: found {refusal.found}, expected {refusal.expected}")
        self.cma: Any = self.begin(init[self.free].double().numpy().copy(), float(section.noise_std))

    @classmethod
    def refusal(cls, dim: int, section: GTNSection, settings: Any) -> Optional[Refusal]:
        for package in PACKAGES:
            if importlib.util.find_spec(package) is None:
                return Refusal("search", cls.name, f"the package {package}, which is not installed: {INSTALL}")
        if section.num_workers < LEAST:
            words = f"at least {LEAST} worlds per generation, for {cls.name}"
            return Refusal("num_workers", str(section.num_workers), words)
        if dim < 2:
            words = f"snes or nes: {cls.name} needs at least 2 numbers that may move, and there are {dim}"
            return Refusal("search", cls.name, words)
        return None

    def begin(self, mean: np.ndarray, sigma: float) -> Any:
        """A fresh object of the package. mean: float64 [D], its own from now on."""
        raise NotImplementedError

    def spread(self, z: np.ndarray) -> np.ndarray:
        """C^(1/2) z of standard normal z [lambda, D]."""
        raise NotImplementedError

    def ask(self) -> Tensor:
        z = self.generator().standard_normal((self.section.num_workers, len(self.cma._mean)))
        self.points = self.cma._mean + self.cma._sigma * self.spread(z)  # x_k = m + sigma C^(1/2) z_k
        worlds = self.init.repeat(len(z), 1)
        worlds[:, self.free] = torch.from_numpy(self.points).float()
        return worlds

    def tell(self, scores: np.ndarray) -> None:
        with one_thread():
            self.cma.tell([(x, -float(score)) for x, score in zip(self.points, scores)])  # the package minimises
        self._move()

    def _move(self) -> None:
        self.centre = self.init.clone()
        self.centre[self.free] = torch.from_numpy(self.cma._mean).float()

    def covariance(self) -> np.ndarray:
        """C as it is stored, float64 [any length]."""
        raise NotImplementedError

    def set_covariance(self, stored: np.ndarray) -> None:
        raise NotImplementedError

    def covariance_length(self) -> int:
        raise NotImplementedError

    def state(self) -> Dict[str, Any]:
        c = self.cma
        arrays = {"mean": c._mean, "path_sigma": c._p_sigma, "path_c": c._pc, "covariance": self.covariance()}
        tensors: Dict[str, Any] = {k: torch.from_numpy(np.array(v, dtype=np.float64)) for k, v in arrays.items()}
        return {**tensors, "sigma": float(c._sigma), "told": int(c._g)}

    def restore(self, state: Dict[str, Any]) -> None:
        c, n = self.cma, len(self.cma._mean)
        lengths = {"mean": n, "path_sigma": n, "path_c": n, "covariance": self.covariance_length()}
        v = {key: vector(state, key, length).numpy().copy() for key, length in lengths.items()}
        sigma = number(state, "sigma")
        if not sigma > 0:
            raise ValueError(f"sigma: found {sigma}, expected a number above 0")
        c._mean, c._p_sigma, c._pc = v["mean"], v["path_sigma"], v["path_c"]
        c._sigma, c._g = np.float64(sigma), count(state, "told")
        self.set_covariance(v["covariance"])
        self._move()
