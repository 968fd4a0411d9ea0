"""What agents reach that train in a world and on its task: the figures of a card."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console

from envolve.agents import peers
from envolve.core.registry import unknown
from envolve.core.statistics import interval
from envolve.envs.outside.build import is_outside
from envolve.envs.task import make_task
from envolve.envs.worlds.file import MODEL
from envolve.outer.auto import report
from envolve.outer.auto.report_plan import ReportPlan, episodes_of
from envolve.outer.auto.unseen import UnseenAgent, unseen_learners
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.reporting.names import return_range
from envolve.outer.search.turns import inner_learners
from envolve.worlds.file import ZooWorld
from envolve.worlds.policy import policy_of
from envolve.worlds.task import task_of

EPISODES = 20  # of the policy that a world holds


@dataclass(frozen=True)
class Measuring:
    """The unseen agents of a card."""

    agents: int = 5  # of each kind
    steps: int = 10_000  # of training
    learners: tuple[str, ...] = ()  # kinds; (): all that the world was not evolved with
    workers: int = 1  # processes


def measured(run_dir: Path, data: Mapping[str, Any], file: str, how: Measuring) -> dict[str, Any]:
    """Trains unseen agents in the world of this file, and on the task for as many steps -> their figures. Finished
    agents are in the run's folder: an interrupted call goes on. Raises RunError, ConfigError."""
    name = data["env_name"]
    own = None if is_outside(name) else make_task(name)
    if own is not None and not own.gymnasium:
        words = "one of Gymnasium's (env_name: gymnasium:ID), on which agents of other libraries can be tested"
        raise RunError(f"{run_dir}: found the task {name}, expected {words}")
    inner = inner_learners(problem.gtn_section(data)) if file == MODEL else []  # a distilled world has seen none
    continuous = bool(own.action_size) if own is not None else not data["envs"][name]["measured"]["action"].get("nvec")
    library = peers.installed()
    found = tested(
        run_dir,
        unseen_learners(continuous, inner, library),
        how,
        library,
        lambda plan: report.jobs_of(run_dir, plan, data["seed"], file),
        return_range(data),
        int(data["envs"][name]["max_steps"]),
    )
    return {
        "random": report.plain_figure(found.random),
        "unseen": report.as_json(found),
        "library": "stable-baselines3" if library else "envolve",
    }


def held(world: ZooWorld, bounds: tuple[float, float] | None) -> dict[str, Any]:
    """What the policy that a world holds returns on its task, without any training. Resets have the seeds 0, 1, ...
    bounds: worst and best possible return. Raises FloatingPointError, and RunError where the task cannot be made."""
    try:
        envs = [task_of(world) for _ in range(EPISODES)]
    except gymnasium.error.Error as e:
        raise RunError(f"{world.task}: {(str(e).splitlines() or [''])[0]:.300}") from None
    act, returns, running = policy_of(world), np.zeros(EPISODES), list(range(EPISODES))
    observations = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)])
    while running:
        for i, action in zip(list(running), act(observations[running])):
            observations[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += float(reward)
            if terminated or truncated:
                running.remove(i)
    for env in envs:
        env.close()
    low, high = interval(returns, bounds=bounds)
    ends = None if math.isnan(low) else [low, high]
    return {"mean_return": float(returns.mean()), "interval": ends, "episodes": EPISODES}


def tested(
    folder: Path,
    fit: Sequence[str],
    how: Measuring,
    library: bool,
    jobs_of: Callable[[ReportPlan], Sequence[UnseenAgent]],
    bounds: tuple[float, float] | None,
    longest: int,
) -> report.Findings:
    """Trains unseen agents in a world, and on its task for as many steps. fit: the kinds that there are; those that see
    normalised observations train for who asks for them. jobs_of: all agents of a plan. Finished agents are in
    ``folder``, so that an interrupted call goes on. bounds: worst and best possible return; longest: steps of the
    task's episodes. Raises ConfigError, RunError."""
    known = [*fit, *(f"{name}{peers.NORMALISED}" for name in fit if library)]
    for learner in how.learners:
        if learner not in known:
            raise ConfigError([unknown("--learners", learner, known)])
    learners = how.learners or tuple(fit)
    plan = ReportPlan(learners, how.agents, (how.steps,) * len(learners), episodes_of(longest), library, ten=False)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        rows = report.train_all(jobs_of(plan), folder / report.FILE, how.workers, Console())
    return report.findings(rows, learners, None, bounds)
