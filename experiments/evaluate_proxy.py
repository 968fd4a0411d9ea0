#!/usr/bin/env python3
"""Trains fresh agents in an evolved world and on the real task, and prints both side by side."""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from envs.world_file import WorldFile, WorldFileError, read_world
from outer.config import environment_info
from outer.evaluate import BUDGET, EARLY_OUT, REAL, evaluate
from outer.nes import member_seeds
from outer.problem import named_learner
from outer.report import number
from outer.statistics import summary

_PURPOSE = 6  # of random numbers: none that the evolution used (outer/nes.py, outer/run.py)


@dataclass
class Args:
    """Train fresh agents in an evolved world and, beside them, on the real task; test all of them on the real task.

    Example: python3 experiments/evaluate_proxy.py results/<run_id>/model.pt --agent ddqn --num-agents 20 --vary-hp
    """

    model: tyro.conf.Positional[Path]
    """A model.pt that GTN_master.py wrote."""
    agent: str | None = None
    """The learner, e.g. ddqn, ql, sarsa; default: the one the world was evolved with."""
    num_agents: int = 20
    """Agents in the world, and as many on the real task."""
    vary_hp: bool = False
    """Draw every agent's learning rate, batch size, hidden size and layers (ql, sarsa: alpha, gamma) around the configured ones."""
    stop: Literal["budget", "early-out"] | None = None
    """When training in an SE ends: after the budget it was evolved for, or by its early-out rule alone; default: budget if it has one."""
    real: bool = True
    """Also train on the real task (--no-real skips it)."""
    seed: int = 0
    """Of the agents; none of the seeds was used in the evolution."""
    threads: int = 0
    """CPU threads, 0: all."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the figures and the raw lists to this file."""


def prepared(world: WorldFile, args: Args) -> tuple[dict[str, Any], str]:
    """The stored configuration with the wanted agent in it, and the agent's name."""
    config = copy.deepcopy(world.config)
    gtn = config["agents"]["gtn"]
    stored = gtn["agent_name"].lower().removesuffix("_vary")
    name = (args.agent or stored).lower().removesuffix("_vary")
    try:
        named_learner(config, name)
    except KeyError as e:
        raise SystemExit(f"evaluate_proxy.py: --agent: {e.args[0]}") from None
    if name != stored and name not in config["agents"]:
        print(f"note: {world.path} has no section agents.{name}; its defaults are used", file=sys.stderr)
    if args.vary_hp:
        config["agents"][f"{name}_vary"] = {"vary_hp": True, "vary_layers": True}
    gtn["agent_name"] = f"{name}_vary" if args.vary_hp else name
    return config, name


def measure(config: dict[str, Any], worlds: torch.Tensor, seeds: np.ndarray, mode: str, threads: int) -> dict[str, Any]:
    """Figures and raw lists of one column. Failed agents are counted and left out of the figures."""
    values = evaluate(config, worlds, torch.from_numpy(seeds), mode, threads)
    returns, steps = values["mean_return"].tolist(), values["train_steps"].tolist()
    fine = [math.isfinite(r) for r in returns]
    out: dict[str, Any] = {"mode": mode, "num_agents": len(returns), "failed": fine.count(False)}
    for name, x in (("return", returns), ("train_steps", steps)):
        kept = [v for v, ok in zip(x, fine) if ok]
        if kept:
            s = summary(kept)
            out |= {f"mean_{name}": s["mean"], f"mean_{name}_interval": s["mean_interval"]}
            out |= {f"iqm_{name}": s["iqm"], f"iqm_{name}_interval": s["iqm_interval"], f"median_{name}": s["median"]}
    out["returns"] = [r if ok else None for r, ok in zip(returns, fine)]
    out["test_returns"] = [t if ok else None for t, ok in zip(values["test_returns"].tolist(), fine)]
    out["train_steps"] = steps
    out["reasons"] = values["reason"]
    return out


def show(console: Console, world: WorldFile, name: str, columns: dict[str, dict[str, Any]]) -> None:
    table = Table(title=f"{world.env_name}: {name} agents, tested on the real task", title_justify="left")
    table.add_column("")
    for title in columns:
        table.add_column(title, justify="right")

    def row(label: str, key: str) -> None:
        cells = []
        for c in columns.values():
            low_high = c.get(f"{key}_interval")
            cells.append(
                f"{number(c[key])}" + (f" [{number(low_high[0])}, {number(low_high[1])}]" if low_high else "")
                if key in c
                else "-"
            )
        table.add_row(label, *cells)

    row("training steps, mean", "mean_train_steps")
    row("training steps, interquartile mean", "iqm_train_steps")
    row("test return, mean", "mean_return")
    row("test return, interquartile mean", "iqm_return")
    row("test return, median", "median_return")
    solved = world.task().solved_reward
    table.add_row(
        f"agents with at least {number(solved)}",
        *(f"{sum(r is not None and r >= solved for r in c['returns'])} of {c['num_agents']}" for c in columns.values()),
    )
    if any(c["failed"] for c in columns.values()):
        table.add_row("failed, in no figure above", *(str(c["failed"]) for c in columns.values()))
    console.print(table)
    console.print("Brackets: 95 % bootstrap intervals.", highlight=False)


def main(argv: list[str] | None = None) -> int:
    args = tyro.cli(Args, args=argv, prog="evaluate_proxy.py")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if args.num_agents < 1:
        raise SystemExit(f"evaluate_proxy.py: --num-agents: found {args.num_agents}, expected at least 1")
    try:
        world = read_world(str(args.model))
    except WorldFileError as e:
        print(f"evaluate_proxy.py: {e}", file=sys.stderr)
        return 1
    config, name = prepared(world, args)
    if args.stop == "budget" and world.budget == 0:
        raise SystemExit(f"evaluate_proxy.py: --stop budget: {args.model} was evolved without a training budget")
    mode = EARLY_OUT if args.stop == "early-out" or world.budget == 0 else BUDGET
    threads = args.threads or len(os.sched_getaffinity(0))
    worlds = world.flat.expand(args.num_agents, -1).contiguous()
    seeds = member_seeds(args.seed, _PURPOSE, 0, 2 * args.num_agents)

    columns = {"proxy": measure(config, worlds, seeds[: args.num_agents], mode, threads)}
    if args.real:
        columns["real"] = measure(config, worlds, seeds[args.num_agents :], REAL, threads)
    titles = {"proxy": "in the evolved world", "real": "on the real task"}
    show(Console(), world, name, {titles[k]: c for k, c in columns.items()})
    if args.json:
        settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k != "json"}
        content = {
            "settings": settings,
            "budget": world.budget,
            "agent": name,
            "versions": environment_info(),
            **columns,
        }
        try:
            args.json.write_text(json.dumps(content, indent=1) + "\n")
        except OSError as e:
            print(f"evaluate_proxy.py: cannot write {args.json}: {e.strerror}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
