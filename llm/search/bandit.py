"""UCB1 (Auer, Cesa-Bianchi and Fischer 2002, https://doi.org/10.1023/A:1013689704352) over language models: which of
several is asked next.

A pull is an attempt of a model. Its reward is how far the attempt's score lies above that of its best parent, as a rank
among all attempts with a score, in (0, 1]: scores have no fixed range, and improvements become small as a run goes on,
but their order means the same at every task. An attempt without a score, and a call that failed, are worth 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from envolve.llm.search.individual import Individual


class UCB1:
    """arms: names, in the order in which ties are decided. exploration: c in mean + c sqrt(ln t / pulls); sqrt(2) is
    the paper's."""

    def __init__(self, arms: Sequence[str], exploration: float = math.sqrt(2)) -> None:
        if not arms or len(set(arms)) != len(arms):
            raise ValueError(f"found arms {list(arms)}, expected at least one, all different")
        self.arms, self.exploration = tuple(arms), exploration
        self.pulls = dict.fromkeys(self.arms, 0)  # pending ones included
        self.known = dict.fromkeys(self.arms, 0)
        self.sums = dict.fromkeys(self.arms, 0.0)

    def update(self, arm: str, reward: float) -> None:
        """Records a pull that ``choose`` did not make, with its reward in [0, 1]."""
        self.pulls[arm] += 1
        self.known[arm] += 1
        self.sums[arm] += reward

    def choose(self) -> str:
        """Chooses the arm with the highest bound; arms without pulls come first. The pull counts at once with a pending
        reward: the arm's mean stays and its bound shrinks, so a batch spreads over the arms."""
        t = sum(self.pulls.values())

        def bound(arm: str) -> float:
            if not self.pulls[arm]:
                return math.inf
            mean = self.sums[arm] / self.known[arm] if self.known[arm] else 1.0  # as good as can be, until it is known
            return mean + self.exploration * math.sqrt(math.log(t) / self.pulls[arm])

        arm = max(self.arms, key=bound)  # the first of equals
        self.pulls[arm] += 1
        return arm


def choose_models(
    models: Sequence[str], known: Sequence[Individual], count: int, under_way: Sequence[str] = ()
) -> list[str]:
    """Models of the next ``count`` attempts. known: all earlier attempts; those of other models do not count.
    under_way: models of attempts whose reward is pending."""
    bandit = UCB1(models)
    for model in under_way:
        if model in bandit.pulls:
            bandit.pulls[model] += 1
    for individual, reward in zip(known, rewards(known)):
        if individual.model in bandit.sums:
            bandit.update(individual.model, reward)
    return [bandit.choose() for _ in range(count)]


def rewards(individuals: Sequence[Individual]) -> list[float]:
    """Rewards of all attempts; equal improvements share the mean of their ranks. An attempt without a scored parent is
    compared with the median score of its iteration."""
    score = {i.id: i.score for i in individuals if i.ok}
    medians: dict[int, float] = {}
    for k in {i.iteration for i in individuals if i.ok}:
        medians[k] = float(np.median([i.score for i in individuals if i.ok and i.iteration == k]))
    gains = {
        i.id: i.score - max((score[p] for p in i.parents if p in score), default=medians[i.iteration])
        for i in individuals
        if i.ok
    }
    ordered = np.sort(np.asarray(list(gains.values())))
    ranks = {
        k: (np.searchsorted(ordered, gain, "left") + 1 + np.searchsorted(ordered, gain, "right")) / 2
        for k, gain in gains.items()
    }
    return [float(ranks[i.id] / len(gains)) if i.id in ranks else 0.0 for i in individuals]
