"""Data for every other picture: runs, goals, shapers, studies, language models, the zoo."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from envolve.core.statistics import AgentRuns
from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.llm.gym import report as gym_report
from envolve.llm.gym.sample import Sample
from envolve.llm.reporting.lineage import lineage_picture
from envolve.llm.reporting.pictures import scores_picture
from envolve.outer.goals import evolution_report
from envolve.outer.goals import report as goal_report
from envolve.outer.goals.log import Score
from envolve.outer.hpo.axes import axes_of
from envolve.outer.hpo.importance import FANOVA, Importance, Share
from envolve.outer.hpo.pictures import budget_loss, importance_bars, parallel_coordinates
from envolve.outer.hpo.trial import TrialResult
from envolve.outer.reporting.plots import learning_curve
from envolve.outer.reporting.scores import CurvePoint
from envolve.outer.shapers.curves import curves
from envolve.outer.shapers.report import Outcome
from envolve.outer.zoo.picture import draw as zoo_picture
from envolve.worlds.shelf import open_world
from tests.llm.attempts import evolution, human
from tests.outer.hpo.trials import SPACE, many
from tests.pictures.paper import draws


def points(low: float, high: float, count: int, outlier: float | None = None) -> list[CurvePoint]:
    rng, out = draws(f"{low} {high}"), []
    for g in range(1, count + 1):
        mean = low + (high - low) * (1 - math.exp(-g / (0.3 * count))) + 0.03 * abs(high - low) * rng.standard_normal()
        bottom = outlier if outlier is not None and g % 11 == 3 else mean - 0.3 * abs(high - low)
        out.append(CurvePoint(g, mean, bottom, mean + 0.1 * abs(high - low), g % 13 == 0, 10, 64))
    return out


def run_of_cartpole(path: Path) -> None:
    rng = draws("runs")
    ours = AgentRuns((200 - rng.exponential(3, 20)).tolist(), [1500.0] * 20)
    theirs = AgentRuns([math.nan, *(200 - rng.exponential(9, 19)).tolist()], np.exp(rng.normal(9, 1, 20)).tolist())
    learning_curve(
        path, points(10, 198, 60), "CartPole-v0: synthetic environment, seed 0", 195.0, (ours, theirs), restarts=(17,)
    )


def run_of_cliff(path: Path) -> None:
    rng = draws("cliff")
    sides = [AgentRuns([-10_000.0, *(-13 - rng.exponential(4, 19)).tolist()], [5000.0] * 20) for _ in range(2)]
    curve = points(-900, -15, 40, -10_000.0)
    learning_curve(path, curve, "Cliff: reward network, seed 0", -20.0, (sides[0], sides[1]))


def goal(path: Path, members: int, own: bool) -> None:
    rng, scores = draws("goal"), []
    for k in range(20):
        for m in range(members):
            s = min(1.0, max(0.0, 1 / (1 + math.exp((8 + m - k) / 2)) + 0.05 * rng.standard_normal()))
            near = 300 * s
            scores.append(
                Score(
                    k,
                    k * 50_000,
                    k * 900,
                    m,
                    64,
                    s,
                    max(0, s - 0.12),
                    min(1, s + 0.12),
                    near,
                    max(0, near - 40),
                    near + 40,
                    1 - s,
                    400.0,
                    (0.5,),
                )
            )
    lines = [f"alpha {10.0**-m:g}" for m in range(members)] if own else ()
    goal_report.learning_curve(path, scores, "Reacher, contrastive RL, seed 0", lines)


def shapers(path: Path) -> None:
    rng, ranking = draws("shapers"), []
    for k in range(14):
        steps = [2048 * (i + 1) for i in range(100)]
        curve = (1.2 - 0.1 * k) * (1 - np.exp(-np.arange(100) / 30)) + 0.02 * rng.standard_normal(100)
        failure = Failure("Diverged", "the agent's weights are not finite", "", 7) if k >= 12 else None
        if failure:
            curve[20:] = math.nan
        name = "human" if k == 4 else f"candidate_{k}_velocity_and_survival"
        found = [] if failure else [float(curve[-1]) * 100]
        ranking.append(
            Outcome(
                Candidate(name),
                None,
                found,
                found,
                failure,
                int(bool(failure)),
                steps,
                curve.tolist(),
                curve.tolist(),
                {},
                None,
                None,
            )
        )
    curves(path, ranking, "Ant, PPO, 204,800 steps per agent, seed 0", "m/s")


def records() -> list[Any]:
    rs = many()
    worst = max(rs, key=lambda r: r.result.loss)
    return [dataclasses.replace(r, result=TrialResult(math.inf, {}, "no")) if r is worst else r for r in rs]


def importance(path: Path) -> None:
    shares = {"agents.gtn.step_size": Share(0.61, 20, (0.5, 0.7)), "agents.icm.lr": Share(0.04, 14)}
    importance_bars(path, Importance(FANOVA, 45.0, 20, shares), "CartPole SEs, BOHB, seed 0")


def attempts() -> list[Any]:
    found = evolution(8, 8, islands=3)
    bad = next(i for i in found if i.ok)
    return [dataclasses.replace(i, score=-10_000.0, interval=None) if i is bad else i for i in found]


def gym_attempts(path: Path) -> None:
    rng = draws("gym")
    samples = [
        Sample(i, k, Path(), fitness=-200.0 + 30 * i + 20 * rng.standard_normal(), episodes=10)
        if (i + k) % 5
        else Sample(i, k, Path(), failure="it raised", stage="allowlist")
        for i in range(6)
        for k in range(4)
    ]
    gym_report.picture(path, samples, Sample(0, 0, Path(), fitness=-90.0), "MountainCarContinuous-v0")


def goal_evolution(path: Path, task: str) -> None:
    from envolve.envs.goal.shapers import FAMILIES, ShapeSpace
    from envolve.envs.goal.task import make_goal_task
    from envolve.outer.goals.keeper import GoalRow

    rng, family = draws(task), next(iter(FAMILIES))
    space = ShapeSpace(make_goal_task(task), family)
    u = rng.standard_normal(len(space.names)) * 0.5
    history = [
        GoalRow(g, 0.2 + 0.06 * g, 0.18 + 0.01 * g, 0.1 + 0.05 * g, 0.3 + 0.06 * g, 0, tuple(u)) for g in range(1, 9)
    ]
    evolve = SimpleNamespace(num_orig_evals=10, score="success")
    evolution: Any = SimpleNamespace(history=history, evolve=evolve, u=torch.from_numpy(u).float())
    evolution_report.picture(path, space, evolution, f"{task}, goals {family}, starts plain")


def zoo_card(path: Path, name: str) -> None:
    zoo_picture(open_world(name), name, path)


PICTURES: dict[str, Callable[[Path], None]] = {
    "run": run_of_cartpole,
    "run_cliff": run_of_cliff,
    "run_outliers": lambda path: learning_curve(path, points(-300, 3200, 40, -90_000.0), "HalfCheetah, seed 0", 3000.0),
    "goal": lambda path: goal(path, 1, False),
    "goal_members": lambda path: goal(path, 3, False),
    "goal_hyperparameters": lambda path: goal(path, 3, True),
    "shapers": shapers,
    "study_parallel": lambda path: parallel_coordinates(
        path, records(), axes_of(SPACE, records()), "CartPole SEs, BOHB, seed 0", "loss, generations"
    ),
    "study_budgets": lambda path: budget_loss(
        path, records(), "CartPole SEs, BOHB, seed 0", "loss, generations", "budget, generations"
    ),
    "study_importance": importance,
    "written_scores": lambda path: scores_picture(path, attempts(), human(), "Ant, written by a model, seed 0", "m/s"),
    "written_lineage": lambda path: lineage_picture(
        path, attempts(), human(), "Ant, written by a model, seed 0", "m/s"
    ),
    "gym_attempts": gym_attempts,
    "goal_evolution_reacher": lambda path: goal_evolution(path, "reacher"),
    "goal_evolution_maze": lambda path: goal_evolution(path, "ant_u_maze"),
    "zoo_FrozenLake": lambda path: zoo_card(path, "FrozenLake-v1-bandit"),
    "zoo_CartPole": lambda path: zoo_card(path, "CartPole-v1-bandit"),
    "zoo_InvertedPendulum": lambda path: zoo_card(path, "InvertedPendulum-v5-bandit"),
}
