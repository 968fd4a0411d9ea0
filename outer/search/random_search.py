"""Random search: the best of independent draws around the first world. The control that any search has to beat.

https://www.jmlr.org/papers/v13/bergstra12a.html (Bergstra and Bengio 2012) is the case for having such a control.
``agents.gtn.num_workers`` worlds are drawn per generation. ``noise_std`` is the standard deviation of a draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict

import numpy as np
import torch
from torch import Tensor

from envolve.core.option import option
from envolve.outer.search.search import Search


@dataclass(frozen=True)
class RandomSection:
    """Settings of ``search: random``, the section ``agents.random``."""

    around: str = option(
        "start",
        "start: independent draws around the first world; best: around the best so far, a hill climb",
        choices=("start", "best"),
    )


class RandomSearch(Search):
    """Worlds drawn uniformly. The best is the world with the highest score of its own agents, so luck counts."""

    section_class = RandomSection
    best_score = -float("inf")
    nes_keys = {
        "step_size": "random makes no steps",
        "nes_step_size": "random makes no steps",
        "mirrored_sampling": "random draws num_workers worlds and never mirrors them",
        "common_random_numbers": "random has no pairs",
        "score_transform_type": "random keeps the best world",
    }

    def __init__(self, dim, mask, init, seed, section, settings=None) -> None:
        super().__init__(dim, mask, init, seed, section, settings or RandomSection())

    def ask(self) -> Tensor:
        count, width = self.section.num_workers, self.section.noise_std * 3**0.5  # variance of U(-w, w): w^2 / 3
        uniform = self.generator().uniform(-width, width, (count, self.dim)).astype(np.float32)
        around = self.init if self.settings.around == "start" else self.centre
        self.worlds = around + torch.from_numpy(uniform) * self.mask  # [num_workers, D]
        return self.worlds

    def tell(self, scores: np.ndarray) -> None:
        best = int(scores.argmax())
        if scores[best] > self.best_score:
            self.centre, self.best_score = self.worlds[best].clone(), float(scores[best])

    def state(self) -> Dict[str, Any]:
        return {"centre": self.centre, "best_score": self.best_score}

    def restore(self, state: Dict[str, Any]) -> None:
        centre, score = state["centre"], state["best_score"]
        if type(centre) is not Tensor or centre.dtype != torch.float32 or list(centre.shape) != [self.dim]:
            raise ValueError(f"centre: found {type(centre).__name__}, expected a tensor float32 [{self.dim}]")
        if not bool(centre.isfinite().all()):
            raise ValueError("centre: found numbers that are not finite")
        if type(score) is not float or score != score:
            raise ValueError(f"best_score: found {score!r:.40}, expected a number")
        self.centre, self.best_score = centre, score
