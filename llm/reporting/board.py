"""TensorBoard events of an evolution by language models, for any watcher (``Watcher`` in ``llm/settings.py``).

The run's folder has a figure per iteration; ``training/<iteration>`` the curves of its candidates, and ``tune_<id>``
those of a tuning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from envolve.agents.shaped.training import Metrics
from envolve.llm.search.individual import Individual
from envolve.outer.reporting.board import Board

if TYPE_CHECKING:
    from envolve.llm.settings import Watcher


class BoardWatcher:
    """Tells another watcher everything, and TensorBoard the figures."""

    def __init__(self, to: Watcher, folder: Path) -> None:
        self.to, self.folder = to, folder
        self.boards: dict[str, Board] = {}
        self.trained: set[int] = set()  # iterations of this session; those remembered are in the files
        self.best, self.count = -np.inf, 0

    def _board(self, name: str) -> Board:
        return self.boards.setdefault(name, Board(self.folder / name))

    def asking(self, iteration: int, proposals: int) -> None:
        self.trained.add(iteration)
        self.to.asking(iteration, proposals)

    def vetting(self, iteration: int, count: int) -> None:
        self.to.vetting(iteration, count)

    def training(self, iteration: int, names: list[str], progress: Metrics, inside: list[int]) -> None:
        score = np.asarray(progress.score, dtype=float).reshape(len(inside), -1).mean(1)
        values = {f"score/{names[c]}": float(score[k]) for k, c in enumerate(inside)}
        self._board(f"training/{iteration + 1:03d}").write(progress.iteration, values)
        self.to.training(iteration, names, progress, inside)

    def finished(self, iteration: int, individuals: Sequence[Individual]) -> None:
        scores = [i.score for i in individuals if i.ok]
        self.best, self.count = max([self.best, *scores]), self.count + len(individuals)
        if iteration in self.trained:
            values = {
                "score/best": self.best,
                "score/mean": float(np.mean(scores)) if scores else np.nan,
                "candidates/all": self.count,
                "candidates/refused": sum(i.rejection is not None for i in individuals),
                "candidates/failed": sum(i.failure is not None for i in individuals),
                "environment_steps": sum(i.steps for i in individuals),
            }
            self._board("").write(iteration + 1, values)
            old = self.boards.pop(f"training/{iteration + 1:03d}", None)
            if old is not None:
                old.close()
        self.to.finished(iteration, individuals)

    def tuning(self, individual: Individual, generation: int, mean: float, best: float) -> None:
        self._board(f"tune_{individual.id}").write(generation, {"score/mean": mean, "score/best": best})
        self.to.tuning(individual, generation, mean, best)

    def note(self, text: str) -> None:
        self.to.note(text)

    def close(self) -> None:
        for board in self.boards.values():
            board.close()
