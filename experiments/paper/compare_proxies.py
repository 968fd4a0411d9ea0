#!/usr/bin/env python3
"""Fresh agents in evolved worlds beside the same agents on the task. The work is in
experiments/paper/common/comparison.py."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("compare_proxies.py")  # before all that takes time to import

from dataclasses import dataclass
from typing import Annotated

import tyro

from envolve.experiments.command_line import parse
from envolve.experiments.paper.common.command import EXIT_CODES, run_command
from envolve.experiments.paper.common.comparison import CompareArgs, compare_rns, compare_ses, evolves_rns
from envolve.experiments.paper.common.learners import SE_AGENTS, published_name
from envolve.experiments.paper.common.proxies import proxy
from envolve.outer.config.load import ConfigError

HELP = """\
Train fresh agents in the best worlds that train_proxy.py evolved, and other agents on the task itself. Test all of them
on the task. The worlds are synthetic environments (SEs) or reward networks (RNs).

  envolve paper compare-proxies default_config_gridworld_reward_env.yaml                 RNs: learning curves
  envolve paper compare-proxies default_config_cartpole_reward_env.yaml --modes 0 1 2
  envolve paper compare-proxies default_config_cartpole_syn_env.yaml                     SEs
  envolve paper compare-proxies default_config_gridworld_reward_env.yaml --quick         a quick look of about a minute

For reward networks (RNs), the command uses the 10 best of each mode, with 10 agents each. Training never ends early,
and each agent is tested on the task after every training episode. For synthetic environments (SEs), it uses the 40 best
that were evolved with fixed hyperparameters and the 40 best that were evolved with varied ones. Each gets 10 agents
with varied hyperparameters, and each agent 10 test episodes. The learners in SEs are DDQN, Dueling DDQN and discrete
TD3. """


@dataclass
class Args(CompareArgs):
    learners: Annotated[list[str] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Learners in SEs. Default: ddqn duelingddqn td3_discrete."""


def work(args: Args) -> int:
    if not evolves_rns(args):
        return compare_ses(args, "compare_proxies", "", tuple(args.learners or SE_AGENTS), vary=True)
    if args.learners:
        raise ConfigError(["--learners: found names, expected none for reward networks; use transfer.py --agent NAME"])
    data = proxy(args.config, args.results_dir, overrides=args.set).config.data
    return compare_rns(args, "compare_proxies", "", published_name(data), vary=False)


def main(argv: list[str] | None = None) -> int:
    args = parse("compare_proxies.py", Args, argv, HELP + EXIT_CODES)
    return run_command("compare_proxies.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
