"""What an evolution by language models is given: its settings, and an observer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from envolve.agents.shaped.halving import Training
from envolve.agents.shaped.training import Metrics
from envolve.llm.search.individual import Individual
from envolve.llm.tune import TuneSettings


@dataclass(frozen=True)
class Settings:
    """Settings of an evolution."""

    iterations: int
    training: Training
    seed: int
    temperature: float = 1.0
    max_tokens: int = 4096
    novelty: float = 1.0  # candidates at least this similar to an earlier one are not trained; above 1: all are
    tune: TuneSettings | None = None
    tune_top: int = 1  # number of best candidates to tune
    finalists: int = 3  # best candidates in the final test, beside tuned ones: the best of many was also lucky
    retest: int = 5  # fresh agents per finalist
    repairs: int = 0  # how often what was refused or failed is asked for again within its iteration
    cascade: float = 1.0  # share of the training that decides which candidates get the full one; 1: all do
    tune_every: int = 0  # iterations after which the numbers of the best so far are tuned; 0: at the end alone


class Watcher(Protocol):
    """Observer of an evolution; ``llm/reporting/live.py`` displays it."""

    def asking(self, iteration: int, proposals: int) -> None: ...

    def vetting(self, iteration: int, count: int) -> None: ...

    def training(self, iteration: int, names: list[str], progress: Metrics, inside: list[int]) -> None: ...

    def finished(self, iteration: int, individuals: Sequence[Individual]) -> None: ...

    def tuning(self, individual: Individual, generation: int, mean: float, best: float) -> None: ...

    def note(self, text: str) -> None: ...
