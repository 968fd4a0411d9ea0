#!/usr/bin/env python3
"""Agents with the hyperparameters that worlds were evolved for: what varied ones cost. The work is in
experiments/paper/common/comparison.py."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("generalization_gap.py")  # before all that takes time to import

from dataclasses import dataclass

import tyro

from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, run_command
from envolve.experiments.paper.common.comparison import CompareArgs, compare_ses, evolves_rns
from envolve.experiments.paper.common.proxies import proxy
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError

HELP = """\
Train agents in synthetic environments (SEs) as compare_proxies.py does, but all with the hyperparameters in CONFIG. The
difference from the results of compare_proxies.py is the generalisation gap over hyperparameters. It is measured for SEs
that were evolved with fixed hyperparameters and for SEs that were evolved with varied ones.

  envolve paper generalization-gap default_config_cartpole_syn_env.yaml [--quick]
"""


@dataclass
class Args(CompareArgs):
    modes: tyro.conf.Suppress[list[int] | None] = None  # of reward networks
    objective: tyro.conf.Suppress[str | None] = None
    worlds: int | None = None
    """Number of best SEs of each kind. Default: 40; with --quick 2."""
    agents: int | None = None
    """Agents per SE. Default: 10; with --quick 4."""


def work(args: Args) -> int:
    if evolves_rns(args):
        raise ConfigError([f"{args.config}: found reward networks, expected a configuration of SEs"])
    data = proxy(args.config, args.results_dir, overrides=args.set).config.data
    return compare_ses(args, "generalization_gap", "", (problem.learner(data)[0],), vary=False)


def main(argv: list[str] | None = None) -> int:
    args = parse("generalization_gap.py", Args, argv, HELP + EXIT_CODES)
    return run_command("generalization_gap.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
