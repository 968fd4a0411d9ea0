"""What a search is: ``ask() -> worlds [P, D]``, ``tell(scores [P])``, and a state from which it goes on.

``Search`` is the class to derive from. A configuration names yours as ``search: my_search.py:MyCMA``; it runs in the
master alone, so it may use any library, and workers never see it. A run adds what a search need not know
(:class:`Strategy`): agents that score the centre, several agents per world, seeds, restarts, checkpoints.

    class Walk(Search):
        def ask(self):
            self.worlds = self.centre + self.section.noise_std * self.noise(self.section.num_workers)
            return self.worlds

        def tell(self, scores):
            self.centre = self.worlds[int(scores.argmax())]

        def state(self):
            return {"centre": self.centre}

        def restore(self, state):
            self.centre = state["centre"]

All randomness comes from :meth:`Search.noise` or :meth:`Search.generator`, which are functions of the run's seed and
the generation. A run that was killed then goes on from its checkpoint to the same bytes. Python 3.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor

from envolve.outer.config.section import GTNSection
from envolve.outer.search.nes import OWN, generator


class Refusal(NamedTuple):
    """A value of a configuration that a built-in search cannot work with."""

    key: str  # of agents.gtn
    found: str
    expected: str


class SearchRefused(Exception):
    """Raised by a search that cannot work with this configuration. Its one line is the run's error."""


class Search:
    """Base class. Axes: P worlds of a generation, D numbers of a world.

    ``centre`` float32 [D] is the search's present answer: agents score it in every generation, it decides whether the
    run is solved, and the best one is what the run keeps. Move it in :meth:`tell`.

    ``generation`` counts the generations that were told, over restarts too; the run sets it.
    """

    generation: int = 0
    centre: Tensor
    section_class: Optional[type] = None  # dataclass of settings, each declared with envolve.option; None: it has none
    mirrored = False  # of built-in searches: whether num_workers counts pairs of worlds
    nes_keys: Dict[str, str] = {}  # of built-in searches: key that nes alone reads -> what is here instead

    def __init__(
        self, dim: int, mask: Tensor, init: Tensor, seed: int, section: GTNSection, settings: Any = None
    ) -> None:
        """dim: D. mask: float32 [D], 1 where a number may move; elsewhere the run puts the first value back. init:
        float32 [D], where to begin. seed: the run's. section: the values of ``agents.gtn`` (``num_workers``,
        ``noise_std``, ``step_size``, ...). A restart makes a new object, with another ``init``. settings: the values of
        the search's own section, an object of ``section_class``; a class without one is made without it."""
        self.dim, self.mask, self.init, self.seed, self.section = dim, mask, init, seed, section
        self.settings = settings
        self.centre = init

    def ask(self) -> Tensor:
        """The worlds of the next generation, float32 [P, D], finite. P may differ from generation to generation."""
        raise NotImplementedError

    def tell(self, scores: np.ndarray) -> None:
        """scores: float64 [P] in the order of the worlds, finite, higher is better. Of a world whose agents all failed
        it is the worst score of the others. A generation in which all failed is counted and never told."""
        raise NotImplementedError

    def state(self) -> Dict[str, Any]:
        """All that the next generation depends on: tensors, numbers, texts, and lists and dicts of them. Called after
        :meth:`tell`, never between :meth:`ask` and :meth:`tell`."""
        raise NotImplementedError

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned, in a new object."""
        raise NotImplementedError

    @classmethod
    def refusal(cls, dim: int, section: GTNSection, settings: Any) -> Optional[Refusal]:
        """Why a built-in search cannot evolve worlds of ``dim`` numbers with these values; None: it can."""
        return None

    def noise(self, count: int) -> Tensor:
        """Standard normal numbers of this generation, float32 [count, D], 0 where the mask is 0."""
        normal = self.generator().standard_normal((count, self.dim), dtype=np.float32)
        return torch.from_numpy(normal) * self.mask

    def generator(self, purpose: int = 0) -> np.random.Generator:
        """A fresh generator of random numbers for this generation; another ``purpose`` has other numbers."""
        return generator(self.seed, OWN, self.generation * 1024 + purpose)


@dataclass
class OwnState:
    """Everything that a run needs to go on with a ``Search``."""

    name: str  # of outer/search/searches.py: SEARCHES
    values: Dict[str, Any]  # what ``Search.state`` returned
    generation: int = 0  # counts on over restarts
    restarts: int = 0


NES_NAME = "nes"  # the one that knows of pairs and of the centre's score: outer/search/nes.py
