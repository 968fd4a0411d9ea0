#!/usr/bin/env python3
"""How much hangs on an agent's hyperparameters, in evolved worlds and on the task: one at a time over a grid."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("hyperparameter_sensitivity.py")  # before all that takes time to import

import dataclasses
import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from envolve.agents.common.sections import LearnerSection
from envolve.core.registry import nearest
from envolve.envs.task import Task
from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, run_command
from envolve.experiments.paper.common.comparison import (
    EVOLVED,
    OF_SES,
    CompareArgs,
    budget_of,
    check,
    evolves_rns,
    find_worlds,
    measurement,
    refuse,
)
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.drawing import in_words
from envolve.experiments.paper.common.learners import (
    LearnerSettings,
    published_name,
    rn_learner,
    se_learner,
    without_budget,
)
from envolve.experiments.paper.common.proxies import proxy, task_of
from envolve.experiments.paper.common.training import each, each_path, no_world, train_agents
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.search.nes import RETEST, member_seeds

HELP = """\
Train agents with one hyperparameter changed at a time, in the best worlds that train_proxy.py evolved and on the task.
Test all of them on the task. Everything else is as in compare_proxies.py. Agents with the same index have the same
random seed in every setting. The worlds are synthetic environments (SEs) or reward networks (RNs).

  envolve paper hyperparameter-sensitivity default_config_cartpole_syn_env.yaml
  envolve paper hyperparameter-sensitivity default_config_cartpole_syn_env.yaml --hyperparameters lr gamma
  envolve paper hyperparameter-sensitivity default_config_gridworld_reward_env.yaml       a reward network (RN)
  envolve paper figures hyperparameter_sensitivity                                        draw the figure

A hyperparameter takes its configured value times each of --factors, within its limits. hidden_layer takes the
configured value, one layer less, one layer more and two more. Hyperparameters with choices, such as activation_fn, take
every choice. SEs were evolved with hyperparameters that vary by at most a factor of three, so larger factors test
generalisation. Agents train in an SE for its budget (--stop), and in RNs and on the task until the task is
solved.
"""
FULL, QUICK = (5, 10), (1, 3)  # worlds, agents in each
FACTORS, QUICK_FACTORS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0), (1 / 3, 1.0, 3.0)
DEEP, SHALLOW = ("lr", "batch_size", "hidden_size", "hidden_layer"), ("alpha", "gamma")  # of nets, of tables
LAYERS = (-1, 0, 1, 2)


@dataclass
class Args(CompareArgs):
    worlds: int | None = None
    """Number of best worlds. Default: 5; with --quick 1."""
    agents: int | None = None
    """Agents per world and value; on the task as many as in all worlds together. Default: 10; with --quick 3."""
    hyperparameters: Annotated[list[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=list)
    """Hyperparameters to vary. Default: lr batch_size hidden_size hidden_layer; tabular learners: alpha gamma."""
    factors: Annotated[list[float], tyro.conf.arg(metavar="X ...")] = field(default_factory=list)
    """Factors on the configured value, as decimals. Default: 1/9 1/3 1 3 9; with --quick 1/3 1 3."""
    agent: str | None = None
    """Learner. Default: the one that compare_proxies.py uses."""
    mode: int | None = None
    """Mode of the RNs. Default: reward_env_type in CONFIG."""
    modes: list[int] | None = None
    """Not accepted here; use --mode."""
    evolved: Annotated[list[str], tyro.conf.arg(metavar="KIND ...")] = field(default_factory=lambda: [*EVOLVED])
    """Not accepted here: all SEs were evolved with varied hyperparameters."""


def grid(section: LearnerSection, name: str, factors: list[float]) -> list[Any]:
    """The values of one hyperparameter, its own among them, those that its limits allow. Raises ConfigError."""
    known = {f.name: f for f in dataclasses.fields(section)}
    if name not in known:
        fitting = nearest(name, known, cutoff=0.0)
        raise ConfigError([f"--hyperparameters: found {name!r}, expected those of the agent; nearest: {fitting!r}"])
    own, metadata = getattr(section, name), known[name].metadata
    if metadata["choices"]:
        return list(metadata["choices"])
    if isinstance(own, bool):
        return [False, True]
    if name == "hidden_layer":  # 0 and 1 build the same net
        values = [max(1, own + more) for more in LAYERS]
    else:
        values = [own, *(own * factor for factor in factors)]
    limits = metadata["limits"]
    low, high = limits.get("ge", limits.get("gt", -np.inf)), limits.get("le", limits.get("lt", np.inf))
    values = [min(max(v, low), high) for v in values]
    if isinstance(own, int):
        values = [round(v) for v in values]
    # within rounding a value is there once: its own, times 1
    kept: list[Any] = []
    for v in values:
        if not any(abs(v - k) <= 1e-9 * abs(k) for k in kept) and ("gt" not in limits or v > low):
            kept.append(v)
    return sorted(kept)


def check_args(args: Args) -> int:
    """-> threads. Raises ConfigError."""
    threads = check(args)
    if args.modes is not None:
        raise ConfigError([f"--modes: found {args.modes}, expected none: --mode, one at a time"])
    if evolves_rns(args):
        refuse(args, OF_SES, f"{args.config} evolves reward networks")
    else:
        refuse(args, ("objective", "evolved"), "the worlds are SEs that were evolved with varied hyperparameters")
    for factor in args.factors:
        if not 0 < factor < np.inf:
            raise ConfigError([f"--factors: found {factor}, expected numbers above 0"])
    return threads


def learners_of(args: Args, data: dict[str, Any], task: Task, budget: int) -> dict[str, LearnerSettings]:
    """Learners in the worlds and on the task. Raises ConfigError."""
    if evolves_rns(args):
        name = (args.agent or published_name(data)).lower()
        who = rn_learner(data, task, name, curious=False, vary=False, settings=args.agent_set, quick=args.quick)
        return {"rn": who, "real": who}
    name = (args.agent or problem.learner(data)[0]).lower()
    who = se_learner(
        data, task, name, published=args.published, vary=False, settings=args.agent_set, budget=budget, quick=args.quick
    )
    return {"se": who, "real": without_budget(who)}


def work(args: Args) -> int:
    threads = check_args(args)
    rns = evolves_rns(args)
    if args.mode is not None and not rns:
        raise ConfigError([f"--mode: found {args.mode}, expected none: {args.config} evolves SEs"])
    base = proxy(args.config, args.results_dir, overrides=args.set, mode=args.mode, objective=args.objective)
    if not base.evolves:
        raise ConfigError([f"--mode: found {base.mode}, expected one in which reward networks are evolved"])
    data = base.config.data
    task = task_of(data)
    mode = f"mode{args.mode}" if args.mode is not None else None
    m = measurement("hyperparameter_sensitivity", task.name, args, args.agent, mode)
    section = learners_of(args, data, task, 0)["real"].section
    usual = DEEP if hasattr(section, "lr") else SHALLOW
    factors = args.factors or list(QUICK_FACTORS if args.quick else FACTORS)
    grids = {name: grid(section, name, factors) for name in args.hyperparameters or usual}
    n_worlds, n_agents = QUICK if args.quick else FULL
    n_worlds, n_agents = args.worlds or n_worlds, args.agents or n_agents

    kind: dict[str, Any] = {"mode": base.mode} if rns else {"vary_hp": True}
    worlds = find_worlds(args, n_worlds, **kind)
    found = learners_of(args, worlds[0].config, task, 0 if rns else budget_of(args, worlds))
    seeds = member_seeds(args.seed, RETEST, 0, n_worlds * n_agents)
    flat = each(torch.stack([w.flat for w in worlds]), n_agents)
    series: Series = {}
    done: dict[tuple[str, LearnerSection], dict[str, list[Any]]] = {}  # the agents' own values are in every grid
    for where, who in found.items():
        for name, values in grids.items():
            parts = []
            for value in values:
                changed = dataclasses.replace(who, section=dataclasses.replace(who.section, **{name: value}))
                if (where, changed.section) not in done:
                    title = f"{where}, {name} {value:.4g}" if isinstance(value, float) else f"{where}, {name} {value}"
                    places, rows = ([], no_world(len(seeds))) if where == "real" else (worlds, flat)
                    train = partial(
                        train_agents, changed, task, where, worlds[0].section, rows, seeds, rns, threads, title
                    )
                    done[where, changed.section] = m.part(title, each_path(places, n_agents), train)
                parts.append(done[where, changed.section])
            label = f"{where} {name}"
            series[label] = {k: [v for part in parts for v in part[k]] for k in ("return", "train_steps", "failed")}
            series[label]["value"] = [value for value in values for _ in seeds]
            if where != "real":
                series[label]["world"] = each_path(worlds, n_agents) * len(values)
    own = {name: getattr(section, name) for name in grids}
    m.save(
        series,
        agent=found["real"].name,
        worlds=n_worlds,
        agents=n_agents,
        grids=grids,
        own=own,
        solved_reward=task.solved_reward,
        hyperparameters={where: vars(who.section) for where, who in found.items()},
    )
    show(series, grids, own, task.name)
    return 0


def show(series: Series, grids: dict[str, list[Any]], own: dict[str, Any], task: str) -> None:
    """A row per value and side."""
    sides = list(dict.fromkeys(label.partition(" ")[0] for label in series))
    table = Table(title=f"{task}, agents tested on the task: IQM", title_justify="left")
    for title in ("", "", "return", "training steps"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for name, values in grids.items():
        for value, side in itertools.product(values, sides):
            number = f"{value:.4g}" if isinstance(value, float) else str(value)
            q = series[f"{side} {name}"]
            rows = [i for i, v in enumerate(q["value"]) if v == value]
            where = [q["world"][i] for i in rows] if "world" in q else []
            cells = [in_words([q[key][i] for i in rows], where) for key in ("return", "train_steps")]
            table.add_row(f"{name} {number}{' *' * (value == own[name])}", side, *cells)
    Console().print(table)
    print("*: the agents' own value. Brackets: 95 % intervals.")


def main(argv: list[str] | None = None) -> int:
    args = parse("hyperparameter_sensitivity.py", Args, argv, HELP + EXIT_CODES)
    return run_command("hyperparameter_sensitivity.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
