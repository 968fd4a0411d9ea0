"""``envolve.evaluate``: fresh agents in an evolved world and, beside them, on the real task."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envolve.api import check_task, read, whole
from envolve.experiments.evaluate_proxy import Args, exploration_of, measure, prepared, said
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.evaluate.device import check_device
from envolve.outer.evaluate.networks import BUDGET, EARLY_OUT, REAL
from envolve.outer.reporting.comparison import return_bounds
from envolve.outer.search.nes import RETEST, member_seeds


@dataclass(frozen=True)
class Figures:
    """Agents that were trained alike and then tested on the real task. NaN: of an agent that broke."""

    returns: list[float]  # mean test return of each agent
    train_steps: list[int]  # environment steps that each was trained for
    mean_return: float  # over the agents that did not break, as the next three
    mean_return_interval: tuple[float, float] | None  # 95 %; None: all values are equal
    mean_train_steps: float
    failed: int  # agents that broke
    reasons: list[str] = field(repr=False)  # why, "" where one did not
    details: dict[str, Any] = field(repr=False)  # all that evaluate_proxy.py --json says


@dataclass(frozen=True)
class Evaluation:
    """What :func:`evaluate` returns."""

    agent: str
    world: Figures
    real: Figures | None  # None: not asked for
    text: str  # the comparison and its price, in words

    def __str__(self) -> str:
        return self.text


def evaluate(
    world: str | os.PathLike[str],
    agent: str | None = None,
    agents: int = 20,
    real: bool = True,
    *,
    seed: int = 0,
    threads: int = 0,
    vary_hp: bool = False,
    code_from: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Train fresh agents in a world and test them on the real task; as many beside them on the task itself.

    world: a model.pt. agent: ddqn, td3, ql, ... ; default: the one the world was evolved with, with the hyperparameters
    of the configuration. real: also train on the task. threads: of the CPU, 0: all; they change no figure. vary_hp:
    every agent draws its own hyperparameters, as with ``agent="ddqn_vary"``. code_from: as of :func:`load_world`. The
    seeds are none that the evolution has seen.

    Raises WorldFileError, ConfigError.
    """
    agents, seed, threads = whole("agents", agents, 1), whole("seed", seed), whole("threads", threads)
    file = read(world, code_from)
    check_task(file)
    args = Args(Path(file.path), agent=agent, num_agents=agents, vary_hp=vary_hp, real=real, seed=seed)
    try:
        config, name = prepared(file, args)
    except ConfigError as e:
        raise ConfigError([p.replace("--agent:", "agent:") for p in e.problems]) from None
    check_device(config["device"], f"{file.path}: device")
    worlds = file.flat.expand(agents, -1).contiguous()
    seeds = member_seeds(seed, RETEST, 1 + file.digest(), 2 * agents)
    modes = {"proxy": BUDGET if file.budget else EARLY_OUT, **({"real": REAL} if real else {})}
    cores, bounds = threads or len(os.sched_getaffinity(0)), return_bounds(file.task())
    columns = {
        column: measure(config, worlds, seeds[i * agents : (i + 1) * agents], mode, cores, bounds)
        for i, (column, mode) in enumerate(modes.items())
    }
    _, lines = said(file, columns)
    other = exploration_of(config) if real else ""
    lines = [f"Agents on the real task: {other}."] * bool(other) + lines
    of_real = _figures(columns["real"]) if real else None
    return Evaluation(name, _figures(columns["proxy"]), of_real, "\n".join(lines))


def _figures(column: dict[str, Any]) -> Figures:
    interval = column.get("mean_return_interval")
    return Figures(
        [math.nan if r is None else r for r in column["returns"]],
        column["train_steps"],
        column.get("mean_return", math.nan),
        tuple(interval) if interval else None,
        column.get("mean_train_steps", math.nan),
        column["failed"],
        column["reasons"],
        column,
    )
