#!/usr/bin/env python3
"""Do evolved worlds train agents that they never saw? Agents of other kinds and other libraries, at equal steps."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("unseen_agents.py")  # before all that takes time to import

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import tyro

from envolve.agents import peers
from envolve.envs.task import NEVER_SOLVED, Task
from envolve.envs.worlds.file import WorldFile
from envolve.experiments import evaluate_proxy
from envolve.experiments.command_line import parse
from envolve.experiments.paper.common import baselines3
from envolve.experiments.paper.common.baselines3 import KINDS, Baseline, Run, processes, train_baselines
from envolve.experiments.paper.common.command import EXIT_CODES, Measurement, run_command
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.fixed_steps import at_fixed_steps, chosen_kinds, seen_kinds, settings_of
from envolve.experiments.paper.common.learners import LearnerSettings
from envolve.experiments.paper.common.proxies import check_alike, proxy, task_of
from envolve.experiments.paper.common.training import agent_seeds, each, each_path, no_world, train_agents
from envolve.experiments.paper.common.unseen import reached_at, show
from envolve.experiments.paper.common.verdicts import evolution_words
from envolve.experiments.paper.common.world_args import WorldArgs, check_numbers, find, read_named
from envolve.outer.config import problem
from envolve.outer.config.load import ConfigError
from envolve.outer.evaluate.networks import exploration, on_task

HELP = """\
Train fresh agents of many kinds, including kinds and a library that the worlds were not evolved with. They train for
the same number of steps in the best synthetic environments (SEs) that train_proxy.py evolved, or in given SEs, and on
the task itself. All agents are tested on the task with greedy actions.

  envolve paper unseen-agents default_config_cartpole_syn_env.yaml
  envolve paper unseen-agents --world results/<run_id>/model.pt --learners ppo sb3_dqn
  envolve paper unseen-agents default_config_cartpole_syn_env.yaml --agent-set ppo.lr=1e-3 sb3_dqn.train_freq=1

The learners of this project are ddqn, duelingddqn, td3_discrete and ppo for discrete actions, and td3, sac and ppo for
continuous actions. They use the hyperparameters in CONFIG if it has a section for them, else the published ones. The
learners of Stable-Baselines3 (pip install 'stable-baselines3>=2.4') are sb3_dqn, sb3_ppo and sb3_a2c, with its default
hyperparameters, and sb3_dqn_target, which updates its target network every 100 steps instead of every 10,000.

On-policy learners train on as many whole rollouts as fit into --steps: sb3_ppo on 4096 of 5000 steps. Training never
ends early. All agents are reported. An agent fails if its numbers are not finite. Failed agents are counted, have no
return, and do not reach --mark.
"""
FULL, QUICK = (10, 5), (2, 1)  # worlds, agents in each


@dataclass
class Args(WorldArgs):
    config: tyro.conf.Positional[Annotated[Path | None, tyro.conf.arg(metavar="CONFIG")]] = None
    """Configuration of the SEs; the same as for train_proxy.py."""
    worlds: int | None = None
    """Number of best SEs. Default: 10; with --quick 2."""
    agents: int | None = None
    """Agents of each learner per SE. Default: 5; with --quick 1."""
    world: Annotated[list[Path], tyro.conf.arg(metavar="FILE ...")] = field(default_factory=list)
    """SEs to use instead of those of CONFIG: model.pt files."""
    learners: Annotated[list[str] | None, tyro.conf.arg(metavar="NAME ...")] = None
    """Learners. Default: all but sb3_a2c."""
    steps: int | None = None
    """Training steps per agent, at most. Default: 5000; with --quick 2500."""
    tests: int | None = None
    """Test episodes per agent. Default: 20; with --quick 5."""
    agent_set: Annotated[list[str], tyro.conf.arg(metavar="NAME.KEY=VALUE ...")] = field(default_factory=list)
    """Hyperparameters of individual learners, e.g. ppo.lr=1e-3 sb3_dqn.train_freq=1."""
    mark: float | None = None
    """Mean return that counts as solved. Default: CartPole 190, else the task's solved_reward."""


def source(args: Args) -> tuple[dict[str, Any], str, list[WorldFile]]:
    """The configuration that agents and task are from, what the data file is called after, and the worlds, none yet
    if they must be looked for. Raises ConfigError, WorldFileError."""
    if (args.config is None) == (not args.world):
        found = "neither CONFIG nor --world FILE" if args.config is None else "both CONFIG and --world FILE"
        raise ConfigError([f"found {found}, expected one of them"])
    if args.config is None:
        if args.worlds is not None or args.set:
            raise ConfigError(["--worlds, --set: found one of them with --world, expected them with CONFIG only"])
        worlds = [read_named("--world", path) for path in args.world]
        check_alike(worlds)
        if worlds[0].kind != "se":
            raise ConfigError([f"--world: found a reward network in {worlds[0].path}, expected an SE"])
        data, _ = evaluate_proxy.prepared(worlds[0], evaluate_proxy.Args(args.world[0]))
        return data, "files" + (f"_{args.name}" if args.name else ""), worlds
    kind = proxy(args.config, args.results_dir, overrides=args.set, name=args.name)
    if kind.mode is not None:
        raise ConfigError([f"{args.config}: found reward networks, expected the configuration of SEs"])
    return kind.config.data, kind.folder.name, []


def train_kind(
    who: LearnerSettings | Baseline,
    task: Task,
    worlds: list[WorldFile],
    data: dict[str, Any],
    seeds: np.ndarray,
    tests: int,
    threads: int,
    run: Run,
    title: str,
) -> dict[str, list[Any]]:
    """An agent per seed, as many in each of the worlds; without worlds on the task."""
    if isinstance(who, Baseline):
        files = [w.path for w in worlds for _ in range(len(seeds) // len(worlds))] or [""] * len(seeds)
        return train_baselines(who, task, files, seeds, tests, run, title)
    if not worlds:
        flat, section = no_world(len(seeds)), problem.env_section(data)
        words = exploration(who.name, who.section, section.contextual_bandit)
        if words:
            print(f"{title}: {words}", file=sys.stderr)
            who = replace(who, section=on_task(who.name, who.section, True))
        return train_agents(who, task, "real", section, flat, seeds, False, threads, title)
    flat = each(torch.stack([w.flat for w in worlds]), len(seeds) // len(worlds))
    return train_agents(who, task, "se", worlds[0].section, flat, seeds, False, threads, title)


def work(args: Args) -> int:
    threads = check_numbers(args, steps=args.steps, tests=args.tests)
    data, what, worlds = source(args)
    task = task_of(data, solved_reward=NEVER_SOLVED)  # so that all train equally long
    mark = reached_at(task_of(data)) if args.mark is None else args.mark
    steps, tests = args.steps or (2500 if args.quick else 5000), args.tests or (5 if args.quick else 20)
    kinds = chosen_kinds(task, args.learners)
    settings = settings_of(args.agent_set, kinds)
    agents_of = {name: at_fixed_steps(data, task, name, steps, tests, settings[name]) for name in kinds}
    m = Measurement("unseen_agents", task.name, what, args, args.out, args.results_dir, args.quick)
    n_worlds, n_agents = QUICK if args.quick else FULL
    n_agents = args.agents or n_agents
    if args.config is not None:
        worlds = find(args, args.config, args.worlds or n_worlds, vary_hp=problem.learner(data)[2] is not None)
    series: Series = {}
    with processes(threads if any(name in KINDS for name in kinds) else 1) as run:
        for name, who in agents_of.items():
            for where, places in (("real", []), ("worlds", worlds)):
                title = f"{name} {where}"
                seeds = agent_seeds(args.seed, places, n_agents, len(worlds) * n_agents)
                train = partial(train_kind, who, task, places, data, seeds, tests, threads, run, title)
                series[title] = m.part(title, each_path(places, n_agents), train)
    m.save(
        series,
        kinds=kinds,
        seen=seen_kinds(data),
        steps=steps,
        tests=tests,
        mark=mark,
        worlds=len(worlds),
        agents=n_agents,
        hyperparameters={name: hyperparameters(who) for name, who in agents_of.items()},
        evolution_steps={w.path: w.evolution_steps for w in worlds},
        stable_baselines3=peers.version() if peers.installed() else "not installed",
    )
    show(series, kinds, seen_kinds(data), task_of(data), steps, mark)
    spent = {w.path: w.evolution_steps for w in worlds}
    print(f"Evolution of the {len(worlds)} SEs, tests included: {evolution_words(spent)} real steps.")
    print(f"Per agent: none in an SE, up to {steps:,} on the task.")
    return 0


def hyperparameters(who: LearnerSettings | Baseline) -> dict[str, Any]:
    if isinstance(who, Baseline):
        return {**baselines3.default_settings(who.name), **who.settings, "total_timesteps": who.steps}
    return vars(who.section)


def main(argv: list[str] | None = None) -> int:
    args = parse("unseen_agents.py", Args, argv, HELP + EXIT_CODES)
    return run_command("unseen_agents.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
