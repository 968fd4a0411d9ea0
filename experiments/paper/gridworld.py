#!/usr/bin/env python3
"""Tabulates a gridworld's SE: its transitions, its rewards, and the values that agents learn in it."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("gridworld.py")  # before all that takes time to import

from dataclasses import dataclass
from typing import Any

from envolve.agents.train import Hardware, train
from envolve.envs.task import NEVER_SOLVED
from envolve.envs.worlds.world import RealTask, World, tables
from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, Measurement, run_command
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.proxies import proxy
from envolve.experiments.paper.common.training import each, no_world, quantities
from envolve.experiments.paper.common.world_args import WorldArgs, check_numbers, find
from envolve.experiments.paper.learned_reward import finite_task
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.search.nes import RETEST, member_seeds

HELP = """\
Tabulate the best synthetic environment (SE) of a small room, state by state. Train 10 agents in the SE and 10 in the
room itself.

  envolve paper gridworld                      the room of 2 x 3 cells
  envolve paper gridworld --task EmptyRoom33 --agents 50
  envolve paper figures gridworld              draw the figure
"""
CONFIG = Path("default_config_gridworld.yaml")
FULL, QUICK = 10, 5  # agents


@dataclass
class Args(WorldArgs):
    task: str = "EmptyRoom23"
    """Gridworld: a task with a finite set of states, e.g. EmptyRoom33."""
    worlds: int | None = None
    """Number of SEs; only 1 is accepted, the best SE."""
    agents: int | None = None
    """Agents in the SE, and again in the room. Default: 10; with --quick 5."""


def behaviour(world: World) -> dict[str, list[Any]]:
    """Each [states, actions]."""
    return {name: t[0].tolist() for name, t in zip(("next_state", "reward", "done"), tables(world))}


def work(args: Args) -> int:
    threads = check_numbers(args)
    if args.worlds not in (None, 1):
        raise ConfigError([f"--worlds: found {args.worlds}, expected 1: the best SE"])
    args.name = args.name or args.task
    args.set = [f"env_name={args.task}", "agents.gtn.synthetic_env_type=0", *args.set]
    data = proxy(CONFIG, args.results_dir, overrides=args.set).config.data
    task = finite_task(data)
    m = Measurement("gridworld", task.name, "", args, args.out, args.results_dir, args.quick)
    [world] = find(args, CONFIG, 1, vary_hp=False)
    agents = args.agents or (QUICK if args.quick else FULL)
    seeds = member_seeds(args.seed, RETEST, 0, agents)
    name, section, _ = problem.learner(world.config)
    # in the room an agent would stop when it first gets there by luck, with values of one or two states
    endless = type(task)(max_steps=task.max_steps, solved_reward=NEVER_SOLVED)
    series: Series = {"task": behaviour(RealTask(task, 1)), "SE": behaviour(world.world())}
    for where, kind, flat in (("task", "real", no_world(agents)), ("SE", "se", each(world.flat[None], agents))):
        hardware = Hardware(threads=threads)
        result = train(name, section, None, endless, kind, world.section, flat, seeds, hardware=hardware)
        q = result.weights.reshape(agents, *task.reward.shape)
        series[f"agents, {where}"] = {**quantities(result, False), "q": q.tolist()}
    m.save(series, agent=name, agents=agents, world=world.path)
    for where in ("task", "SE"):
        s = series[f"agents, {where}"]
        print(f"{where}: {agents} {name} agents, returns {s['return']}, steps {s['train_steps']}")
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse("gridworld.py", Args, argv, HELP + EXIT_CODES)
    return run_command("gridworld.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
