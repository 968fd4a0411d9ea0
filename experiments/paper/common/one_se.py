"""Arguments of the commands that look into one SE, and the choice of that SE."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from envolve.envs.task import Task
from envolve.envs.worlds.file import WorldFile
from envolve.experiments.paper.common.comparison import CompareArgs, budget_of
from envolve.experiments.paper.common.learners import LearnerSettings, se_learner
from envolve.experiments.paper.common.proxies import proxy, task_of
from envolve.experiments.paper.common.watched import check_watchable
from envolve.experiments.paper.common.world_args import WorldArgs, find, read_named
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError


@dataclass
class OneSEArgs(WorldArgs):
    config: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="CONFIG")]] = Path(
        "default_config_cartpole_syn_env.yaml"
    )
    """Configuration of the SEs; the same as for train_proxy.py."""
    worlds: int | None = None
    """Number of SEs; only 1 is accepted, the best SE."""
    agent: str | None = None
    """Learner. Default: the one that the SE was evolved with."""
    evolved: Annotated[str, tyro.conf.arg(metavar="KIND")] = "varied"
    """Kind of SE: varied or fixed (evolved with varied or with fixed hyperparameters)."""
    model: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """SE to use instead of the best one: a model.pt."""


def se_of(args: OneSEArgs) -> tuple[Task, WorldFile, LearnerSettings]:
    """The task, the best SE (or ``args.model``), and its learner. Raises ConfigError, WorldFileError."""
    config, evolved, model = args.config, args.evolved, args.model
    if evolved not in ("varied", "fixed"):
        raise ConfigError([f"--evolved: found {evolved!r}, expected varied or fixed"])
    kind = proxy(config, args.results_dir, overrides=args.set)
    if kind.mode is not None:
        raise ConfigError([f"{config}: found reward networks, expected the configuration of SEs"])
    data = kind.config.data
    task = task_of(data)
    name = (args.agent or problem.learner(data)[0]).lower()

    def learner(data: dict[str, Any], budget: int) -> LearnerSettings:
        return se_learner(data, task, name, published=False, vary=False, settings=[], budget=budget, quick=args.quick)

    check_watchable(learner(data, 0))  # before worlds are evolved
    world = read_named("--model", model) if model else find(args, config, 1, vary_hp=evolved == "varied")[0]
    if (world.kind, world.env_name) != ("se", task.name):
        raise ConfigError(
            [f"--model: found a world of {world.env_name}, expected an SE of {task.name}, as {config} has"]
        )
    return task, world, learner(world.config, budget_of(CompareArgs(config), [world]))
