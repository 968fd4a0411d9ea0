#!/usr/bin/env python3
"""Compares the distributions of next states and rewards in an SE and in the task (figures 4 and 8)."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("histograms.py")  # before all that takes time to import

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from envolve.envs.worlds.world import World
from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, Measurement, run_command
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.one_se import OneSEArgs, se_of
from envolve.experiments.paper.common.training import each
from envolve.experiments.paper.common.watched import StepRecorder, Steps, train_watched, walk
from envolve.experiments.paper.common.world_args import check_numbers
from envolve.outer.config.load import ConfigError
from envolve.outer.search.nes import RETEST, member_seeds

HELP = """\
Train 10 agents in the best synthetic environment (SE), and test them on the task. Then compare the distributions of
next states and rewards in three kinds of steps: steps in the SE during training, steps in the task during the tests,
and the SE's predictions for the states and actions of the tests.

  envolve paper histograms                                          CartPole, DDQN
  envolve paper histograms default_config_acrobot_syn_env.yaml --agent duelingddqn
  envolve paper figures histograms                                  draw the figure
"""
FULL, QUICK = 10, 4  # agents


@dataclass
class Args(OneSEArgs):
    steps: int = 5000
    """Steps of each kind to keep, at most; evenly spaced."""
    agents: int | None = None
    """Number of agents. Default: 10; with --quick 4."""


def spread_rows(count: int, most: int) -> np.ndarray:
    """Indices of at most ``most`` of ``count`` rows, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def answers(world: World, asked: Steps) -> Steps:
    """Predictions of the SE (P = 1) for the states and actions of other steps."""
    state, action = (torch.from_numpy(np.asarray(x))[None] for x in (asked.observation, asked.action))
    if world.task.num_states is not None:
        state = state.argmax(-1, keepdim=True)
    next_state, reward, done, _ = world.step(state, action)
    values = (world.observe(next_state), reward, done)
    return Steps(asked.observation, asked.action, *(v[0].numpy() for v in values))


def quantities(steps: Steps, most: int) -> dict[str, list[Any]]:
    kept = steps.take(spread_rows(len(steps.reward), most))
    return {
        "next_state": list(kept.next_observation),
        "reward": list(kept.reward),
        "done": list(kept.done),
        "steps": [len(steps.reward)],
    }


def work(args: Args) -> int:
    check_numbers(args, steps=args.steps)
    if args.worlds not in (None, 1):
        raise ConfigError([f"--worlds: found {args.worlds}, expected 1: the best SE"])
    task, world, learner = se_of(args)
    m = Measurement("histograms", task.name, args.agent or "", args, args.out, args.results_dir, args.quick)
    agents = args.agents or (QUICK if args.quick else FULL)
    seeds = member_seeds(args.seed, RETEST, 0, agents)
    series: Series = {}
    recorder = StepRecorder()
    flat = each(world.flat[None], agents)
    trained = train_watched(learner, task, world.section, flat, seeds, recorder.wrap)
    returns = np.where(trained.result.status == 0, trained.result.test_return.mean(1), np.nan)
    if not np.isfinite(returns).any():
        raise ValueError(f"{world.path}: all agents failed in it, expected some that learn")
    tests = walk(task, trained, learner.section.test_episodes)
    series["SE in training"] = quantities(recorder.steps(), args.steps)
    series["task in tests"] = quantities(tests, args.steps)
    series["SE, asked as in tests"] = quantities(answers(world.world(), tests), args.steps)
    series["agents"] = {"return": returns.tolist(), "train_steps": trained.result.train_steps.tolist()}
    m.save(series, agent=learner.name, agents=agents, world=world.path)
    print(f"{task.name}: {len(seeds)} {learner.name} agents, mean test return {np.nanmean(returns):.4g}")
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse("histograms.py", Args, argv, HELP + EXIT_CODES)
    return run_command("histograms.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
