"""Statistics of a run of candidates between two reports."""

from __future__ import annotations

from typing import Dict, List, Tuple

import torch
from torch import Tensor


class Tally:
    """Means over the steps since ``take``, by candidate."""

    def __init__(self, P: int, device: torch.device) -> None:
        self.P, self.device = P, device
        self.begin()

    def take(self) -> Tuple[Tensor, Tensor, Tensor, List[Dict[str, float]]]:
        """True score and reward per step float64 [P], episodes ended int64 [P], and the means of the reward's
        components; begins anew."""
        n = max(self.steps, 1)
        components = [{name: float(total) / n for name, total in own.items()} for own in self.components]
        taken = self.score / n, self.reward / n, self.episodes, components
        self.begin()
        return taken

    def begin(self) -> None:
        self.score, self.reward = (torch.zeros(self.P, dtype=torch.float64, device=self.device) for _ in range(2))
        self.episodes = torch.zeros(self.P, dtype=torch.int64, device=self.device)
        self.components: List[Dict[str, Tensor]] = [{} for _ in range(self.P)]
        self.steps = 0

    def add(self, score: Tensor, reward: Tensor, over: Tensor) -> None:
        """Adds one step; [P, N] each."""
        self.score += score.mean(1)
        self.reward += reward.double().mean(1)
        self.episodes += over.sum(1)
        self.steps += 1

    def add_components(self, members: range, means: Dict[str, Tensor]) -> None:
        """Adds means of components: [len(members)] each."""
        for name, mean in means.items():
            for k, i in enumerate(members):
                self.components[i][name] = self.components[i].get(name, 0) + mean[k].detach()
