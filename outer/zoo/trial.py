"""Agents that train in a world of the zoo and are tested on its task: how well a world suits a learner."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.spaces import Box, Discrete

from envolve.agents import peers
from envolve.envs.outside.measure import DEFAULT_STEPS
from envolve.envs.worlds.file import write_atomic
from envolve.outer.auto import report
from envolve.outer.auto.report_plan import ReportPlan
from envolve.outer.auto.unseen import REAL, WORLD, Environments, UnseenAgent, unseen_learners
from envolve.outer.checkpoint import RunError
from envolve.outer.reporting.names import return_range
from envolve.outer.zoo.measure import Measuring, held, tested
from envolve.worlds import shelf
from envolve.worlds.file import ZooWorld
from envolve.worlds.task import make_task, task_of

FOLDER = "zoo"  # in the folder of results: finished agents, by task


@dataclass(frozen=True)
class ZooAgent(UnseenAgent):
    """``world``: a name of the shelf, or a .safetensors file."""

    def environments(self) -> Environments:
        """Raises WorldError."""
        return Environments(lambda: make_task(self.world), lambda: shelf.make(self.world))


def learners_of(world: ZooWorld) -> list[str]:
    """Kinds of Stable-Baselines3 that can act in it."""
    if isinstance(world.action.space, (Discrete, Box)):
        return unseen_learners(isinstance(world.action.space, Box), [], True)
    return ["ppo", "a2c"]  # which alone take several indices at once


def trial(name: str, how: Measuring, results_dir: Path) -> report.Findings:
    """Trains agents in a world, and on its task for as many steps. Finished ones are kept, so an interrupted call goes
    on, and worlds of one task share the agents that train on it. Raises WorldError, ConfigError, RunError."""
    world = shelf.open_world(name)
    if not peers.installed():
        raise RunError("Stable-Baselines3 is not installed: pip install stable-baselines3")
    try:
        with contextlib.closing(task_of(world)) as task:
            longest = (task.spec and task.spec.max_episode_steps) or DEFAULT_STEPS
    except gymnasium.error.Error as e:
        raise RunError(f"{world.task}: {(str(e).splitlines() or [''])[0]:.300}") from None
    folder = results_dir / FOLDER / world.task

    def jobs_of(plan: ReportPlan) -> list[ZooAgent]:
        jobs = report.jobs_of(folder, plan, 0)
        return [ZooAgent("", job.learner, job.where, job.steps, job.seed, job.tests, True, name) for job in jobs]

    bounds = return_range({"env_name": world.task})
    return tested(folder, learners_of(world), how, True, jobs_of, bounds, longest)


def with_figures(card: Mapping[str, Any], found: report.Findings) -> dict[str, Any]:
    """A card with these figures, beside those of the learners that were not tested now."""
    new = report.as_json(found)
    changed = {"unseen": WORLD, "on_task": REAL}
    return {**card, **{key: {**card.get(key, {}), **{k: new[k][place] for k in new}} for key, place in changed.items()}}


def save(name: str, found: report.Findings) -> Path:
    """Writes figures, also those of the policy that it holds, into the card of a world of the shelf -> its path. Raises
    WorldError, RunError."""
    card = with_figures(shelf.card(name), found)
    world = shelf.open_world(name)
    card["policy"] = held(world, return_range({"env_name": world.task}))
    path = shelf.path_of(name).with_suffix(shelf.CARD)
    write_atomic(str(path), (json.dumps(card, indent=1, allow_nan=False) + "\n").encode())
    return path
