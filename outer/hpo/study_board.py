"""TensorBoard events of a search over hyperparameters; the step is the number of a trial."""

from __future__ import annotations

import math
from pathlib import Path

from envolve.outer.hpo.trial import Record
from envolve.outer.reporting.board import Board


class StudyBoard:
    """Losses of every budget apart: they cannot be compared. Trials that an earlier process wrote are not repeated."""

    def __init__(self, folder: Path, known: int) -> None:
        """known: number of trials that were there before."""
        self.board, self.known = Board(folder, known), known
        self.best: dict[float, float] = {}

    def tell(self, record: Record) -> None:
        trial, loss = record.trial, record.result.loss
        if math.isfinite(loss):
            self.best[trial.budget] = min(loss, self.best.get(trial.budget, math.inf))
        if trial.id < self.known:
            return
        name = f"budget_{trial.budget:g}"
        values = {f"loss/{name}": loss, f"best/{name}": self.best.get(trial.budget, math.inf)}
        values |= {f"info/{key}": value for key, value in record.result.info.items()}
        seconds = record.finished - record.started
        self.board.write(trial.id, {**values, "seconds": seconds, "failed": float(not math.isfinite(loss))})
