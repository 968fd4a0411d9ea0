"""What is trained of an iteration: no copies, all in one simulator, beside the human's shapers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from envolve.agents.shaped.training import Metrics
from envolve.llm.cascade import evaluate_in_two
from envolve.llm.fitness import evaluate
from envolve.llm.search.individual import HUMAN, NOVELTY, Individual
from envolve.llm.search.novelty import most_similar
from envolve.llm.settings import Settings, Watcher

HUMAN_ID = -1


def reject_copies(s: Settings, new: Sequence[Individual], known: Sequence[Individual]) -> None:
    """Rejects duplicates of earlier individuals with a message; they are not trained."""
    earlier = [i for i in known if i.graph_file is not None]
    for individual in new:
        if individual.graph_file is None:
            continue
        near, similarity = most_similar(individual, earlier, numbers=s.tune is None)
        if near is not None and similarity >= s.novelty:
            text = f"it computes what attempt {near.id} computes (similarity {similarity:.2f})"
            score = f", which scored {near.score:.4g}" if near.ok else ""
            individual.rejection = (NOVELTY, text + score)
        else:
            earlier.append(individual)


def train(
    s: Settings,
    watcher: Watcher,
    iteration: int,
    new: Sequence[Individual],
    human: Individual,
    shorts: Sequence[float],
) -> list[Individual]:
    """Trains the individuals that were not rejected. The human's shapers, the reference, take part in the first
    simulator and are then returned. shorts: short scores of a cascade so far."""
    members = [i for i in new if i.rejection is None]
    if not members:
        return []
    reference = [] if human.ok or human.failure is not None else [human]
    members += reference
    names = [HUMAN if i.operator == HUMAN else f"i{i.id:03d}" for i in members]

    def report(progress: Metrics, inside: list[int]) -> None:
        watcher.training(iteration, names, progress, inside)

    if s.cascade < 1:
        evaluate_in_two(s.training, members, s.seed, s.cascade, [x for x in shorts if math.isfinite(x)], report)
    else:
        evaluate(s.training, members, s.seed, report)
    return reference


def untrained_human() -> Individual:
    """The task's own shapers, without a score."""
    return Individual(HUMAN_ID, 0, 0, HUMAN, (), "", -1)
