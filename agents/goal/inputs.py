"""What the networks of learners with goals see. Axes as in ``crl.py``."""

from __future__ import annotations

from typing import Dict, Mapping, Optional

import torch
from torch import Tensor

from envolve.agents.common.normaliser import Moments


class Inputs:
    """Base of learners whose networks see a state and its goal side by side, normalised if ``moments`` are set."""

    moments: Optional[Moments]

    def _input(self, features: Tensor, goal: Tensor) -> Tensor:
        """Inputs of the networks, [P, B, S + G]."""
        x = torch.cat((features, goal), 2)
        return x if self.moments is None else self.moments.normalise(x)

    def _observe(self, features: Tensor, goal: Tensor) -> None:
        """Adds the observations of a decision to the normaliser, which takes them with ``merge_moments``."""
        if self.moments is not None:
            self.moments.add(torch.cat((features, goal), 2))

    def merge_moments(self) -> None:
        """Merges the observations of a phase into the normaliser."""
        if self.moments is not None and self.moments.new:
            self.moments.merge()

    def _moments_state(self) -> Dict[str, Tensor]:
        return {} if self.moments is None else self.moments.state_dict()

    def _load_moments(self, state: Mapping[str, Tensor]) -> None:
        if self.moments is not None:
            self.moments.load_state_dict(state)
