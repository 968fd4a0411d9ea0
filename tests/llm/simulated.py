"""A run of a search without models and without training: what becomes of a proposal is drawn from its place in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envolve.llm.search.individual import HUMAN, Individual, Proposal, RewardSearch
from tests.llm.individuals import individual


def answers(proposals: Sequence[Proposal], iteration: int, first_id: int, seed: int) -> list[Individual]:
    """Scores, failures and rejections, some of each."""
    out = []
    for k, p in enumerate(proposals):
        rng = np.random.default_rng([seed, iteration, k])
        i = individual(
            first_id + k, iteration=iteration, island=p.island, operator=p.operator, parents=p.parents, model=p.model
        )
        fate = rng.integers(5)
        if fate == 0:
            i.rejection = (str(rng.choice(["extract", "trace", "novelty", "call"])), f"message {rng.integers(100)}")
        elif fate == 1:
            i.failure = "NotFinite: compute_reward"
        else:
            i.score = float(rng.integers(6))  # equal scores happen
        out.append(i)
    return out


def run(
    search: RewardSearch, iterations: int, seed: int, human: bool = True
) -> tuple[list[Individual], list[list[Proposal]]]:
    """Everything that the search was told, and what it proposed in each iteration."""
    told: list[Individual] = []
    asked = []
    if human:
        told.append(individual(0, operator=HUMAN, score=2.5, call=-1, model=""))
        search.tell(told)
    for iteration in range(iterations):
        asked.append(search.ask(iteration))
        new = answers(asked[-1], iteration, len(told), seed)
        search.tell(new)
        told += new
    return told, asked
