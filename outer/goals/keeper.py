"""Files of an evolution of starts and goals: generations.csv, and the checkpoint from which it goes on."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envolve.core.files import TORCH_BYTES, UnfitFileError, read_plain
from envolve.core.torch_file import read_torch
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.goals.checkpoint import write_torch
from envolve.outer.loop.loop import Evaluated, Generation
from envolve.outer.names import CHECKPOINT
from envolve.outer.search.nes import NES, ORIG, NESState

GENERATIONS = "generations.csv"


@dataclass(frozen=True)
class GoalRow:
    """Row of generations.csv. Means over members that did not diverge; NaN: all did."""

    generation: int  # from 0
    score: float  # where the search stands
    plain: float  # with the task's own starts and goals and the same seeds
    perturbed: float  # of all perturbations
    best: float
    diverged: int
    u: tuple[float, ...]  # [D], where it stood


class GoalKeeper:
    """Both files are replaced whole after every generation."""

    search: NES  # whose state is kept

    def __init__(self, folder: Path, names: list[str]) -> None:
        """names: of the parameters, [D]. Reads the checkpoint, if there is one. Raises RunError."""
        self.folder, self.names = folder, names
        self.history: list[GoalRow] = []
        self.comparison: tuple[list[float], list[float]] = ([], [])  # scores with the evolved ones, and plain
        self.state = self._load()  # to begin with; None: at the beginning

    def known(self, number: int) -> Evaluated | None:
        return None

    def evaluated(self, g: Generation) -> None:
        """Nothing yet: a generation in which all have diverged is in no file."""

    def told(self, g: Generation) -> None:
        n, P, scores = g.members.roles.count(ORIG), g.asked, g.found.scores
        perturbed = scores[n:P]
        best = float(np.nanmax(perturbed)) if np.isfinite(perturbed).any() else math.nan
        means = mean(scores[:n]), mean(scores[P:]), mean(perturbed)
        stood = tuple(g.members.worlds[0, 1:].tolist())
        self.history.append(GoalRow(g.number - 1, *means, best, int(np.isnan(scores).sum()), stood))
        self._save()

    def compared(self, evolved: list[float], plain: list[float]) -> None:
        """Keeps the scores of the closing comparison."""
        self.comparison = evolved, plain
        self._save()

    def _save(self) -> None:
        """Writes the state, generations.csv first: the checkpoint relies on it."""
        head = ["generation", "score", "plain", "perturbed", "best", "diverged", *(f"u {n}" for n in self.names)]
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(head)
        for g in self.history:
            values = [g.score, g.plain, g.perturbed, g.best]
            rows.writerow([g.generation, *(f"{v:.6g}" for v in values), g.diverged, *(f"{v:.6g}" for v in g.u)])
        write_atomic(str(self.folder / GENERATIONS), text.getvalue().encode())
        content = {
            "nes": self.search.state.to_dict(),
            "history": [asdict(g) for g in self.history],
            "comparison": list(self.comparison),
        }
        write_torch(self.folder / CHECKPOINT, content)

    def _load(self) -> NESState | None:
        path = self.folder / CHECKPOINT
        if not path.exists():
            return None
        try:
            content: dict[str, Any] = read_torch(read_plain(path, TORCH_BYTES))
            state = NESState(**content["nes"])
            if len(state.psi) != len(self.names):
                raise ValueError(f"{len(state.psi)} parameters, expected {len(self.names)}")
            self.history = [GoalRow(**{**g, "u": tuple(g["u"])}) for g in content["history"]]
            evolved, plain = content["comparison"]
            self.comparison = evolved, plain
        except Exception as e:
            reason = str(e.strerror if isinstance(e, UnfitFileError) else e).strip().split("\n")[0]
            raise RunError(f"{path}: not a checkpoint of this run ({type(e).__name__}: {reason})") from None
        return state


def mean(scores: np.ndarray) -> float:
    """Mean over the members that did not diverge."""
    return float(np.nanmean(scores)) if np.isfinite(scores).any() else math.nan
