#!/usr/bin/env python3
"""Do hyperparameters that are good in an SE do well on the task? Correlations over sampled sets of them."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("correlation.py")  # before all that takes time to import

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import tyro

from envolve.agents.common.hyper import draw
from envolve.agents.common.sections import VarySection
from envolve.core.statistics import kendall, pairs_interval, pearson, spearman
from envolve.envs.task import NEVER_SOLVED
from envolve.experiments.command_line import check_count, parse
from envolve.experiments.paper.common.command import EXIT_CODES, run_command
from envolve.experiments.paper.common.comparison import (
    EVOLVED,
    CompareArgs,
    budget_of,
    check,
    evolves_rns,
    find_worlds,
    measurement,
)
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.learners import LearnerSettings, se_learner
from envolve.experiments.paper.common.proxies import proxy, task_of
from envolve.experiments.paper.common.training import each, no_world, train_agents
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.search.nes import RETEST, member_seeds

HELP = """\
Correlate how well hyperparameters work in the best synthetic environment (SE) and on the task. The command samples sets
of hyperparameters. With each set it trains agents in the SE and on the task for the same number of steps, and tests all
of them on the task. It reports the Spearman, Kendall and Pearson correlations of the mean returns over the sets, with
95 % bootstrap intervals.

  envolve paper correlation default_config_cartpole_syn_env.yaml
"""
FULL, QUICK = (10, 100), (5, 3)


@dataclass
class Args(CompareArgs):
    agents: int | None = None
    """Agents per set of hyperparameters. Default: 100."""
    sets: int | None = None
    """Number of hyperparameter sets. Default: 10."""
    steps: int | None = None
    """Training steps per agent. Default: the budget that the SE was evolved for."""
    # one SE, the best of the kind of CONFIG's agent_name
    modes: tyro.conf.Suppress[list[int] | None] = None
    objective: tyro.conf.Suppress[str | None] = None
    worlds: tyro.conf.Suppress[int | None] = None
    evolved: tyro.conf.Suppress[list[str]] = field(default_factory=lambda: [*EVOLVED])


STATISTICS = {"spearman": spearman, "kendall": kendall, "pearson": pearson}


def work(args: Args) -> int:
    threads = check(args)
    if evolves_rns(args):
        raise ConfigError([f"{args.config}: found reward networks, expected a configuration of SEs"])
    for option, value, least in (("--sets", args.sets, 2), ("--steps", args.steps, 1)):
        check_count(option, value, least)
    n_sets, n_agents = QUICK if args.quick else FULL
    n_sets, n_agents = args.sets or n_sets, args.agents or n_agents
    kind = proxy(args.config, args.results_dir, overrides=args.set)
    data = kind.config.data
    task = task_of(data, solved_reward=NEVER_SOLVED)  # so that all agents train equally long
    m = measurement("correlation", task.name, args)
    [world] = find_worlds(args, 1, vary_hp=problem.learner(data)[2] is not None)
    steps = args.steps or budget_of(args, [world])
    if steps == 0:
        raise ConfigError(
            [f"--steps: found nothing, and {world.path} has no budget; expected the number of training steps"]
        )
    agent = problem.learner(data)[0]
    base = se_learner(
        world.config,
        task,
        agent,
        published=args.published,
        vary=False,
        settings=args.agent_set,
        budget=steps,
        quick=False,
    )
    base = dataclasses.replace(base, section=dataclasses.replace(base.section, early_out_min_steps=steps))
    keys = member_seeds(args.seed, RETEST, 1, n_sets)
    seeds = member_seeds(args.seed, RETEST, 0, n_agents)
    learners = [
        LearnerSettings(
            base.name,
            draw(base.section, keys[i : i + 1], VarySection()).member(0),
            None,
            None,
            base.backend,
            base.device,
        )
        for i in range(n_sets)
    ]
    series: Series = {}
    for where in ("se", "real"):
        flat = each(world.flat[None], n_agents) if where == "se" else no_world(n_agents)
        parts = [
            train_agents(who, task, where, world.section, flat, seeds, False, threads, f"{where}, set {i}")
            for i, who in enumerate(learners)
        ]
        series[where] = {name: [v for part in parts for v in part[name]] for name in parts[0]}
        series[where]["set"] = [i for i in range(n_sets) for _ in range(n_agents)]
    x, y = (np.nanmean(np.reshape(series[where]["return"], (n_sets, n_agents)), 1) for where in ("se", "real"))
    series["correlation"] = {}
    for name, statistic in STATISTICS.items():
        low, high = pairs_interval(statistic, x, y)
        series["correlation"][name] = [statistic(x, y), low, high]
        print(f"{name:9} {statistic(x, y):6.2f}  [{low:.2f}, {high:.2f}]")
    drawn = ("lr", "batch_size", "hidden_size", "hidden_layer")
    sets = [{k: v for k, v in vars(who.section).items() if k in drawn} for who in learners]
    m.save(series, agent=agent, sets=n_sets, agents=n_agents, steps=steps, world=world.path, hyperparameters=sets)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse("correlation.py", Args, argv, HELP + EXIT_CODES)
    return run_command("correlation.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
