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

from envolve.agents.goal.crl_train import GoalSection, GoalTraining
from envolve.core.files import TORCH_BYTES, UnfitFileError, read_plain
from envolve.core.option import option
from envolve.core.torch_file import read_torch
from envolve.envs.goal.shapers import Shaped, ShapeSpace
from envolve.envs.goal.task import make_goal_task
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.config.section import GTNSection
from envolve.outer.search.nes import COMPARISON, NES, NESState, Population, member_seeds

CHECKPOINT, GENERATIONS, BEST = "checkpoint.pt", "generations.csv", "shapers.csv"
SCORES = ("success", "near", "distance")


@dataclass(frozen=True)
class EvolveSection:
    """Options of the search."""

    goal_family: str = option("", "family of the goals: circle, offset, box, cells or point; none: the task's own")
    start_family: str = option("", "family of the starts, as for the goals")
    generations: int = option(20, "generations", ge=1, le=10**6)
    num_workers: int = option(8, "perturbations per generation, each in both directions", ge=1, le=10**6)
    num_orig_evals: int = option(
        4, "members that score the current search point, and as many plain ones", ge=1, le=10**6
    )
    noise_std: float = option(0.5, "standard deviation of a perturbation, in units of each parameter", gt=0)
    step_size: float = option(0.3, "Adam's learning rate, in the same units", gt=0)
    score: str = option(
        "success", "share of episodes near the goal once, share of decisions near it, or minus the last distance (m)",
        choices=SCORES,
    )  # fmt: skip
    score_evals: int = option(
        1, "evaluations, evenly spaced over a training, the last at its end; the score is their mean", ge=1, le=10**6
    )
    comparison_agents: int = option(
        16, "fresh agents with the evolved starts and goals, and as many plain ones", ge=2, le=10**6
    )


@dataclass(frozen=True)
class Inner:
    """Options of the training of each member."""

    env_name: str = option("simple_u_maze", "the task; docs/goals.md has them all")
    agent: str = option("crl", "the learner", choices=("crl", "sac", "td3", "ppo"))
    num_timesteps: int = option(50_000, "environment steps of each member", ge=1, le=10**12)
    num_eval_envs: int = option(64, "evaluation episodes of each member", ge=1, le=10**5)
    episode_length: int = option(0, "decisions of an episode; 0: the task's own", ge=0, le=10**6)
    action_repeat: int = option(1, "environment steps per decision", ge=1, le=10**4)
    seed: int = option(0, "random seed of the search", ge=0, le=2**31)
    engine: str = option("mujoco", "simulator of tasks with a robot", choices=("mujoco", "mujoco_warp"))
    threads: int = option(0, "CPU threads; 0: all that this process may use", ge=0, le=1024)
    device: str = option("cpu", "cpu, or cuda")
    exp_name: str = option("", "name of the run's folder in results/; default: task, families, time and seed")


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


def scores_of(inner: Inner, learner: GoalSection, evolve: EvolveSection, space: ShapeSpace, u: Tensor, keys: Tensor,
              plain: Tensor) -> np.ndarray:  # fmt: skip
    """Train a member for each row of u [P, D] -> scores [P], NaN where one diverged. keys: int64 [P]; plain: bool
    [P]. A member's numbers depend on its key and its u alone, up to rounding."""
    task = space.task
    device = torch.device(inner.device)
    training = GoalTraining(
        task, make_goal_task(inner.env_name), learner, keys.to(device), episode_length=inner.episode_length,
        action_repeat=inner.action_repeat, num_eval_envs=inner.num_eval_envs, engine=inner.engine,
        threads=inner.threads, beginnings=Shaped(space, space.theta(u.to(device)), plain),
    )  # fmt: skip
    found = []
    for number in range(1, evolve.score_evals + 1):
        while training.steps < inner.num_timesteps * number / evolve.score_evals:
            training.iteration()
        e = training.evaluate()
        value = {"success": e.success, "near": e.near / e.length, "distance": -e.distance}[evolve.score]
        found.append(value.mean(1).numpy())
    return np.mean(found, 0)


class GoalEvolution:
    """The search and its files. ``evaluate(u, keys, plain)`` -> scores, as ``scores_of``."""

    def __init__(
        self, folder: Path, evolve: EvolveSection, seed: int, names: list[str],
        evaluate: Callable[[Tensor, Tensor, Tensor], np.ndarray],
    ) -> None:  # fmt: skip
        """names: of the parameters, [D]. Resumes from the folder, if it has a checkpoint. Raises RunError."""
        self.folder, self.evolve, self.seed, self.names, self.evaluate = folder, evolve, seed, names, evaluate
        self.section = GTNSection(
            num_workers=evolve.num_workers, noise_std=evolve.noise_std, step_size=evolve.step_size,
            num_orig_evals=evolve.num_orig_evals, estimator="antithetic", common_random_numbers=True,
        )  # fmt: skip
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
            "nes": self.nes.state.to_dict(), "history": [asdict(g) for g in self.history],
            "comparison": list(self.comparison),
        }  # fmt: skip
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
