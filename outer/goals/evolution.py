"""Evolution of starts and goals in its folder: generations, files, and resuming.

A generation trains all its members from scratch side by side, one population: num_orig_evals with the starts and goals
that the search stands at, as many as plain members with the task's own and the same seeds, and those of the
perturbations. A member's score is what its evaluations give, and those have the task's own starts and goals always.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.core.files import TORCH_BYTES, UnfitFileError, read_plain
from envolve.core.torch_file import read_torch
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.config.section import GTNSection
from envolve.outer.goals.evolve_sections import EvolveSection
from envolve.outer.search.nes import COMPARISON, NES, NESState, Population, member_seeds

CHECKPOINT, GENERATIONS, BEST = "checkpoint.pt", "generations.csv", "shapers.csv"


@dataclass(frozen=True)
class Generation:
    """Row of generations.csv. Means over members that did not diverge; NaN: all did."""

    generation: int
    score: float  # where the search stands
    plain: float  # with the task's own starts and goals and the same seeds
    perturbed: float  # of all perturbations
    best: float
    diverged: int
    u: tuple[float, ...]  # where it stood


class GoalEvolution:
    """The search and its files. ``evaluate(u, keys, plain)`` -> scores float64 [P], as ``GoalMembers``."""

    def __init__(
        self,
        folder: Path,
        evolve: EvolveSection,
        seed: int,
        names: list[str],
        evaluate: Callable[[Tensor, Tensor, Tensor], np.ndarray],
    ) -> None:
        """names: of the parameters, [D]. Resumes from the folder, if it has a checkpoint. Raises RunError."""
        self.folder, self.evolve, self.seed, self.names, self.evaluate = folder, evolve, seed, names, evaluate
        self.section = GTNSection(
            num_workers=evolve.num_workers,
            noise_std=evolve.noise_std,
            step_size=evolve.step_size,
            num_orig_evals=evolve.num_orig_evals,
            estimator="antithetic",
            common_random_numbers=True,
        )
        self.history: list[Generation] = []
        self.comparison: tuple[list[float], list[float]] = ([], [])  # scores with the evolved ones, and plain
        state = self._load()
        ones = torch.ones(len(names))
        self.nes = NES(self.section, seed, lambda _: torch.zeros(len(names)), ones, state)

    @property
    def done(self) -> bool:
        return len(self.history) >= self.evolve.generations

    @property
    def u(self) -> Tensor:
        """Current search point, [D]."""
        return self.nes.state.psi

    def generation(self) -> Generation:
        """One generation: ask, evaluate, tell, write."""
        population, n = self.nes.ask(), self.evolve.num_orig_evals
        u = torch.cat((population.worlds, population.worlds[:n]))
        keys = torch.cat((population.seeds, population.seeds[:n]))
        plain = torch.zeros(len(u), dtype=torch.bool)
        plain[len(population.worlds) :] = True
        scores = self.evaluate(u, keys, plain)
        row = self._row(population, scores)
        self.nes.tell(worst_for_diverged(scores[: len(population.worlds)]))
        self.history.append(row)
        self.save()
        return row

    def _row(self, population: Population, scores: np.ndarray) -> Generation:
        n, P = self.evolve.num_orig_evals, len(population.worlds)
        perturbed, diverged = scores[n:P], int(np.isnan(scores).sum())
        best = float(np.nanmax(perturbed)) if np.isfinite(perturbed).any() else math.nan
        means = mean(scores[:n]), mean(scores[P:]), mean(perturbed)
        return Generation(len(self.history), *means, best, diverged, tuple(self.u.tolist()))

    def compare(self) -> None:
        """Trains fresh agents with new random seeds, at the end of the search and plain."""
        n = self.evolve.comparison_agents
        seeds = torch.from_numpy(member_seeds(self.seed, COMPARISON, 0, n)).repeat(2)
        plain = torch.arange(2 * n) >= n
        scores = self.evaluate(self.u.repeat(2 * n, 1), seeds, plain)
        self.comparison = scores[:n].tolist(), scores[n:].tolist()
        self.save()

    # --------------------------------------------------------------------------------------------------------- files

    def save(self) -> None:
        """Writes the state, generations.csv first: the checkpoint relies on it."""
        head = ["generation", "score", "plain", "perturbed", "best", "diverged", *(f"u {n}" for n in self.names)]
        lines = [",".join(head)]
        for g in self.history:
            values = [g.score, g.plain, g.perturbed, g.best]
            numbers = [str(g.generation), *(f"{v:.6g}" for v in values), str(g.diverged), *(f"{v:.6g}" for v in g.u)]
            lines.append(",".join(numbers))
        write_atomic(str(self.folder / GENERATIONS), ("\n".join(lines) + "\n").encode())
        content = {
            "nes": self.nes.state.to_dict(),
            "history": [asdict(g) for g in self.history],
            "comparison": list(self.comparison),
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        write_atomic(str(self.folder / CHECKPOINT), buffer.getvalue())

    def _load(self) -> NESState | None:
        path = self.folder / CHECKPOINT
        if not path.exists():
            return None
        try:
            content: dict[str, Any] = read_torch(read_plain(path, TORCH_BYTES))
            state = NESState(**content["nes"])
            if len(state.psi) != len(self.names):
                raise ValueError(f"{len(state.psi)} parameters, expected {len(self.names)}")
            self.history = [Generation(**{**g, "u": tuple(g["u"])}) for g in content["history"]]
            evolved, plain = content["comparison"]
            self.comparison = evolved, plain
        except Exception as e:
            reason = str(e.strerror if isinstance(e, UnfitFileError) else e).strip().split("\n")[0]
            raise RunError(f"{path}: not a checkpoint of this run ({type(e).__name__}: {reason})") from None
        return state


def mean(scores: np.ndarray) -> float:
    """Mean over the members that did not diverge."""
    return float(np.nanmean(scores)) if np.isfinite(scores).any() else math.nan


def worst_for_diverged(scores: np.ndarray) -> np.ndarray:
    """Replaces the scores of diverged members by the worst. Raises RunError if all have diverged."""
    if np.isnan(scores).all():
        raise RunError("every member has diverged: their weights are not finite; lower learning rates")
    return np.where(np.isnan(scores), np.nanmin(scores), scores)
