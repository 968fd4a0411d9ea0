#!/usr/bin/env python3
"""Trains agents in worlds that were evolved with other agents, like compare_proxies.py. The work is in
experiments/paper/common/comparison.py."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("transfer.py")  # before all that takes time to import

from dataclasses import dataclass

import tyro

from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, run_command
from envolve.experiments.paper.common.comparison import CompareArgs, compare_rns, compare_ses, evolves_rns
from envolve.experiments.paper.common.learners import published_name
from envolve.experiments.paper.common.proxies import proxy
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError

HELP = """\
Train agents with other hyperparameters or other learners than in the evolution. They train in the best worlds that
train_proxy.py evolved, and on the task itself. Everything else is as in compare_proxies.py. The worlds are synthetic
environments (SEs) or reward networks (RNs).

  envolve paper transfer default_config_gridworld_reward_env.yaml --vary-hp          draw hyperparameters for each agent
  envolve paper transfer default_config_gridworld_reward_env.yaml --agent sarsa
  envolve paper transfer default_config_cartpole_reward_env.yaml --agent duelingddqn
  envolve paper transfer default_config_cartpole_syn_env.yaml --agent ppo            in SEs

--vary-hp draws lr, batch_size and hidden_size log-uniformly in [x/3, 3x] and adds -1, 0 or 1 hidden layers; for
tabular learners it draws alpha and gamma in [.1, 1]. The published transfers use sarsa (Cliff), duelingddqn
(CartPole) and ppo (MountainCarContinuous, HalfCheetah).
"""


@dataclass
class Args(CompareArgs):
    vary_hp: tyro.conf.FlagCreatePairsOff[bool] = False
    """Draw hyperparameters for each agent."""
    agent: str | None = None
    """Learner instead of the one that the worlds were evolved with, e.g. sarsa, duelingddqn, ppo."""


def work(args: Args) -> int:
    if not args.vary_hp and args.agent is None:
        raise ConfigError(["found neither --vary-hp nor --agent NAME, expected one of them or both"])
    rns = evolves_rns(args)
    data = proxy(args.config, args.results_dir, overrides=args.set).config.data
    agent = (args.agent or (published_name(data) if rns else problem.learner(data)[0])).lower()
    what = "_".join([agent] * (args.agent is not None) + ["vary_hp"] * args.vary_hp)
    if rns:
        return compare_rns(args, "transfer", what, agent, args.vary_hp)
    return compare_ses(args, "transfer", what, (agent,), args.vary_hp)


def main(argv: list[str] | None = None) -> int:
    args = parse("transfer.py", Args, argv, HELP + EXIT_CODES)
    return run_command("transfer.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
