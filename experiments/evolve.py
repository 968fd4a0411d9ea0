#!/usr/bin/env python3
"""Evolves a world for any Gymnasium environment, without a configuration: envolve evolve gymnasium:LunarLander-v3"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("evolve.py")  # before all that takes time to import

import logging
import os
import shlex
from dataclasses import dataclass, field
from typing import Annotated

import torch
import tyro

from envolve.core import commands, plugins
from envolve.core.plugins import PluginError
from envolve.envs.outside.build import OutsideError
from envolve.envs.worlds.file import WorldFileError
from envolve.experiments.command_line import check_count, exit_code, parse
from envolve.outer.auto.choice import AUTO, Choice
from envolve.outer.auto.prepare import Prepared, check_minutes, prepare
from envolve.outer.auto.session import Session, begin, read_session
from envolve.outer.checkpoint import RunError
from envolve.outer.config.load import ConfigError, read_kwargs
from envolve.outer.config.yaml_lines import option_value
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.reporting.wandb_run import check_wandb, followed

PROG = "evolve.py"
HELP = """\
Evolve a world for any Gymnasium environment, or for a task of your own, without a configuration. The command reads the
environment's spaces, measures its speed, and chooses world, learner, search and sizes that fit into --minutes. It
prints this plan as YAML for `envolve run`, then evolves the world. At the end it writes a report: agents of kinds that
were not used in the evolution train in the world, on the environment for the same number of steps, and, if there is
time, on the environment for ten times as many.

  envolve evolve gymnasium:LunarLander-v3
  envolve evolve gymnasium:Pendulum-v1 --minutes 10 --json pendulum.json
  envolve evolve gymnasium:minigrid:MiniGrid-Empty-5x5-v0 --wrappers minigrid.wrappers:ImgObsWrapper
  envolve evolve my_task.py:MyTask                               a class in a file of your own
  envolve evolve gymnasium:CartPole-v1 --check                   print the plan and exit
  envolve evolve --resume results/<run>                          go on after Ctrl-C

The report uses the agents of Stable-Baselines3 (pip install stable-baselines3) with their default hyperparameters.
Without that package it uses Envolve's own learners, except those used in the evolution. The numbers of generations
and agents are fixed before the evolution, from --minutes and the measured speed. After that, results do not depend on
the clock.

Exit codes: 0 complete, 1 it cannot start or continue, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM (resumable)."""

QUICK = {"minutes": 1.5, "agents": 2, "steps": 2048}


@dataclass
class Args:
    env: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="ENV")]] = None
    """The environment: gymnasium:ID, or gymnasium:package.module:ID to import that module first, or my_env.py:MyEnv, a
    class in a file in the current folder. The class is a Gymnasium environment or a task (envolve.Task)."""
    minutes: float | None = None
    """Time for evolution and report together, in minutes. Default: 30; with --quick 1.5."""
    world: Annotated[str, tyro.conf.arg(metavar="KIND")] = AUTO
    """Kind of world: bandit (contextual bandit), se (synthetic environment), rn (reward network) or auto."""
    learner: Annotated[str, tyro.conf.arg(metavar="NAME")] = AUTO
    """Learner of the inner loop, e.g. DDQN_vary, TD3_vary or PPO, or auto."""
    search: Annotated[str, tyro.conf.arg(metavar="NAME")] = AUTO
    """Search over worlds: a value of agents.gtn.search (docs/searches.md), e.g. nes or cma, or auto."""
    init: Annotated[str, tyro.conf.arg(metavar="KIND")] = AUTO
    """Initial world: distilled (from an expert that was trained on the environment), random or auto."""
    learners: Annotated[list[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=list)
    """Kinds of agents in the report: ppo, dqn, a2c, sac, td3. Default: all that suit the environment and fit into
    --minutes."""
    agents: int | None = None
    """Agents of each kind, in the world and again on the environment. Default: as many as fit into --minutes, at most
    10."""
    steps: int | None = None
    """Training steps of an agent in the world. Default: 4096 to 10240, depending on --minutes; at least 6144 for
    PPO."""
    wrappers: Annotated[list[str], tyro.conf.arg(metavar="MODULE:CLASS ...")] = field(default_factory=list)
    """Wrappers around the environment. A name without a module is looked up in gymnasium.wrappers. With arguments:
    '{RescaleObservation: {min_obs: -1, max_obs: 1}}'."""
    env_kwargs: Annotated[list[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Keyword arguments for the environment."""
    set: Annotated[list[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Values that override the plan, e.g. agents.gtn.max_iterations=20."""
    seed: int = 0
    """Random seed of everything."""
    workers: int | None = None
    """Worker processes. Default: one per core."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Parent folder of new runs."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Continue the run in this folder with its stored plan. You may add only --workers, --wandb and --json."""
    check: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the plan and exit."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """Quick look of about 1.5 minutes: few generations, two agents of each kind."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Also log to this Weights & Biases project, with models and films (docs/tracking.md)."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the numbers of the report to this JSON file."""


def check(args: Args) -> None:
    """Raises ConfigError."""
    check_wandb(args.wandb)
    if (args.env is None) == (args.resume is None):
        found = "neither ENV nor --resume DIR" if args.env is None else "both ENV and --resume DIR"
        raise ConfigError([f"found {found}, expected one of them, e.g. gymnasium:CartPole-v1"])
    if args.resume is not None:
        fresh = Args(resume=args.resume, workers=args.workers, wandb=args.wandb, json=args.json)
        given = [k for k, v in vars(args).items() if v != getattr(fresh, k)]
        if given:
            words = "--resume goes on with the plan of its run"
            raise ConfigError([f"{words}: found --{given[0].replace('_', '-')}, expected none"])
    if args.minutes is not None:
        check_minutes("--minutes", args.minutes)
    for option, value, least in (
        ("--agents", args.agents, 1), ("--steps", args.steps, 1), ("--seed", args.seed, 0),
        ("--workers", args.workers, 1),
    ):  # fmt: skip
        check_count(option, value, least)
    if args.json is not None and (args.json.is_dir() or not args.json.parent.is_dir()):
        raise ConfigError([f"--json: cannot write {args.json}, expected a file in a folder that exists"])


def planned(args: Args) -> Prepared:
    """Raises ConfigError."""
    quick = QUICK if args.quick else {"minutes": 30.0, "agents": None, "steps": None}
    defaulted = tuple(name for name in ("agents", "steps") if args.quick and not getattr(args, name))
    choice = Choice(
        seconds=60.0 * (args.minutes or float(quick["minutes"] or 0.0)),
        world=args.world,
        learner=args.learner,
        search=args.search,
        init=args.init,
        seed=args.seed,
        workers=args.workers or len(os.sched_getaffinity(0)),
        agents=args.agents or quick["agents"],  # type: ignore[arg-type]
        steps=args.steps or quick["steps"],  # type: ignore[arg-type]
        quick=defaulted,
    )
    print(f"note: measuring {args.env} ...", file=sys.stderr)
    return prepare(
        str(args.env),
        choice,
        overrides=args.set,
        wrappers=[option_value("--wrappers", text) for text in args.wrappers],
        env_kwargs=read_kwargs(args.env_kwargs),
        learners=args.learners,
        quick=args.quick,
    )


def work(args: Args) -> int:
    check(args)
    if args.resume is not None:
        session = read_session(args.resume)
    else:
        made = planned(args)
        for warning in made.config.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        print(made.plan.text(), end="", flush=True)
        if args.check:
            return 0
        session = begin(made, args.results_dir, " ".join(sys.argv))
    workers = args.workers or session.workers
    words = [*commands.typed(PROG), "--resume", str(session.run_dir)]
    words += ["--workers", str(args.workers)] if args.workers else []
    words += ["--json", str(args.json)] if args.json else []
    words += ["--wandb", args.wandb] if args.wandb else []
    interrupt.advise(f"continue with: {shlex.join(words)}")
    return finish(session, workers, args.json, args.wandb)


def finish(session: Session, workers: int, path: Path | None, wandb: str | None = None) -> int:
    """Does what is left of a session, and returns the exit code."""
    plugins.allow(session.run_dir)
    with followed(wandb, session.run_dir), session.clock():
        session.evolve(workers)
        outcome = session.report(workers)
    outcome.show()
    outcome.write(session.run_dir / "report.json")
    if path is not None:
        outcome.write(path)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse(PROG, Args, argv, HELP)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    torch.set_num_threads(1)  # a second thread would only take a core from a worker
    errors = (RunError, ExchangeError, WorldFileError, OutsideError, PluginError, ValueError)
    return exit_code(PROG, lambda: work(args), errors)


if __name__ == "__main__":
    interrupt.run(main)
