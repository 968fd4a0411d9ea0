#!/usr/bin/env python3
"""What reward networks have learned to pay: the reward of every state and action of a finite task (figure 10), and what
an agent that learned it to the end would return on the task."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("learned_reward.py")  # before all that takes time to import

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import tyro

from envolve.envs.classic.finite import FiniteTask
from envolve.envs.worlds.file import WorldFile
from envolve.envs.worlds.world import RealTask, tables
from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, Measurement, run_command
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.proxies import CURIOSITY, MODES, TASK, check_mode, label, modes_of, proxy, task_of
from envolve.experiments.paper.common.world_args import WorldArgs, check_numbers, find
from envolve.outer.config.load import ConfigError
from envolve.outer.controls.values import action_values, return_on, table_of

HELP = """\
Read the reward of every state and action from the 50 best reward networks (RNs) of each mode. Value iteration finds the
policy that is optimal for that reward, and its return on the task. This is the return of an agent that trains in the RN
for ever. No agent is trained.

  envolve paper learned-reward                                                  RNs of Cliff, all modes
  envolve paper learned-reward --modes 1 2 --worlds 10
  envolve paper learned-reward default_config_gridworld_reward_env.yaml --set env_name=HoleRoom --name HoleRoom
  envolve paper figures learned_reward                                          draw the figure
"""
FULL, QUICK = 50, 2


@dataclass
class Args(WorldArgs):
    config: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="CONFIG")]] = Path(
        "default_config_gridworld_reward_env.yaml"
    )
    """Configuration of the RNs; the same as for train_proxy.py."""
    worlds: int | None = None
    """Number of best RNs of each mode. Default: 50; with --quick 2."""
    modes: list[int] = field(default_factory=list)
    """RN modes (train_proxy.py --help lists them). Default: all modes that the task supports."""
    # tables are read off networks: there are no agents, no seeds and no curve
    agents: tyro.conf.Suppress[int | None] = None
    seed: tyro.conf.Suppress[int] = 0
    tensorboard: tyro.conf.Suppress[Path | None] = None
    wandb: tyro.conf.Suppress[str | None] = None


def rewards(worlds: list[WorldFile]) -> np.ndarray:
    """[worlds, states, actions], float32. A potential's discount is that of the agents the world was evolved with."""
    return np.stack([tables(world.world())[1][0].numpy() for world in worlds])


def optimum(world: WorldFile, task: FiniteTask) -> float:
    """Return on the task of the policy that is optimal for the RN's reward, with the discount of its agents."""
    q = action_values(table_of(world.world()), world.discount())
    return return_on(task, q.argmax(1), task.start_state)


def finite_task(data: dict[str, Any]) -> FiniteTask:
    """Raises ConfigError."""
    task = task_of(data)
    if not isinstance(task, FiniteTask):
        raise ConfigError([f"env_name: found {task.name}, expected a task with a finite set of states, such as Cliff"])
    return task


def rn_modes(modes: list[int], task: FiniteTask) -> list[int]:
    """Those that are asked for, in which something is evolved. Raises ConfigError."""
    for mode in modes:
        check_mode(mode, task, "--modes")
        if mode in (CURIOSITY, TASK):
            raise ConfigError([f"--modes: found {mode} ({MODES[mode]}), expected modes of reward networks"])
    return list(dict.fromkeys(modes)) or [m for m in modes_of(task) if m not in (CURIOSITY, TASK)]


def work(args: Args) -> int:
    check_numbers(args)
    data = proxy(args.config, args.results_dir, overrides=args.set).config.data
    task = finite_task(data)
    modes = rn_modes(args.modes, task)
    m = Measurement("learned_reward", task.name, "", args, args.out, args.results_dir, args.quick)
    count = args.worlds or (QUICK if args.quick else FULL)
    series: Series = {"task": {"reward": list(tables(RealTask(task, 1))[1].numpy())}}
    for mode in modes:
        worlds = find(args, args.config, count, mode=mode)
        learned = rewards(worlds)
        optima = np.array([optimum(w, task) for w in worlds])
        series[label(mode)] = {
            "reward": list(learned), "optimum_return": optima.tolist(), "world": [w.path for w in worlds],
        }  # fmt: skip
        print(
            f"{label(mode)}, {MODES[mode]}: {len(worlds)} RNs, rewards {learned.min():.3g} to {learned.max():.3g}; "
            f"their optima return {np.median(optima):.4g} on the task ({optima.min():.4g} to {optima.max():.4g}), "
            f"{int((optima >= task.solved_reward).sum())} solve it"
        )
    m.save(series, worlds=count, modes=modes)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse("learned_reward.py", Args, argv, HELP + EXIT_CODES)
    return run_command("learned_reward.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
