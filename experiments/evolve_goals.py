#!/usr/bin/env python3
"""Evolves the starts and goals that agents train with: envolve evolve-goals --help"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("evolve_goals.py")  # before all that takes time to import

import argparse
import contextlib
import dataclasses
import json
import logging
import os
import re
import shlex
import time
from collections.abc import Sequence
from typing import Any

import torch
import yaml
from rich.console import Console

from envolve.core import commands
from envolve.core.files import TEXT_BYTES, read_plain
from envolve.envs.sim.simulator import SimulatorError
from envolve.envs.worlds.file import write_atomic
from envolve.experiments.command_line import empty_folder, exit_code
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.load import environment_info
from envolve.outer.config.yaml_lines import ConfigError, parse_yaml
from envolve.outer.evaluate.device import unusable
from envolve.outer.evaluate.goals import GoalProblem
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.goals.arguments import Parser, add_section, flag, read_learner, read_section
from envolve.outer.goals.evolution import GoalEvolution
from envolve.outer.goals.evolution_report import PICTURE, picture, summary
from envolve.outer.goals.evolve_sections import EvolveSection, Inner
from envolve.outer.goals.members import GoalMembers, engine_of
from envolve.outer.goals.sections import AGENTS
from envolve.outer.loop.loop import Generation
from envolve.outer.names import CONFIG_FILE
from envolve.outer.reporting.board import Board
from envolve.outer.reporting.folders import new_folder
from envolve.outer.reporting.wandb_run import check_wandb, followed

HELP = """\
Evolve a distribution of starts, goals or both to train with, so that agents do better on the task's own starts and
goals. Each generation trains one member per perturbation, side by side and from scratch, and scores it on the task's
own starts and goals. At the end, fresh agents that train with the evolved distribution are compared with agents that
train with the task's own, with equal random seeds.

  envolve evolve-goals --task simple_u_maze --goal-family cells --num-timesteps 50000
  envolve evolve-goals --task reacher --start-family box --agent sac --use-her --num-envs 32
  envolve evolve-goals --resume results/<run>

Exit codes: 0 complete, 1 it cannot start or continue, 2 wrong arguments, 130 Ctrl-C, 143 SIGTERM (--resume
repeats the interrupted generation)."""

log = logging.getLogger("envolve")
PROG = "evolve_goals.py"
CHUNK, MOST_WORKERS = 8, 10_000


def to_yaml(plan: GoalProblem) -> str:
    parts = {name: dataclasses.asdict(part) for name, part in zip(plan._fields, plan)}
    head = "\n".join(f"# {name}: {json.dumps(value)[1:-1]}" for name, value in environment_info().items())
    return f"# Everything the run used.\n{head}\n\n{yaml.safe_dump(parts, sort_keys=False, width=120)}"


def build_parser() -> Parser:
    parser = Parser(
        "evolve_goals.py", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--resume",
        metavar="DIR",
        help="continue the run in this folder with its stored arguments; you may add only --workers and --wandb",
    )
    parser.add_argument("--run-dir", metavar="DIR", help="folder of the run (default: a new folder in --results-dir)")
    parser.add_argument(
        "--results-dir", default="results", metavar="DIR", help="parent folder of new runs (default: results)"
    )
    parser.add_argument("--wandb", metavar="PROJECT", help=commands.WANDB_HELP)
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of local workers, which train --chunk-size members at a time (default: this process trains all)",
    )
    add_section(parser, "search", EvolveSection)
    add_section(parser, "training", Inner)
    sections = {agent: section for agent, (section, _, _) in AGENTS.items()}
    for agent, (section, title, _) in AGENTS.items():
        add_section(parser, f"learner: {title} (--agent {agent})", section, sections)
    return parser


def make_plan(given: dict[str, Any]) -> GoalProblem:
    """given: flags and their values. Raises ConfigError with every problem found."""
    problems: list[str] = []
    own = {cls: {f.name for f in dataclasses.fields(cls)} for cls in (Inner, EvolveSection)}
    inner, evolve = (
        read_section(cls, {n: v for n, v in given.items() if n in names}, problems, "--") for cls, names in own.items()
    )
    learner = read_learner(given, inner.agent, problems)
    if not inner.threads:
        inner = dataclasses.replace(inner, threads=len(os.sched_getaffinity(0)))
    try:
        GoalProblem(inner, evolve, learner).space()
    except ValueError as e:
        problems.append(f"--task, --goal-family, --start-family: {e}")
    problems += unusable(inner.device)
    if problems:
        raise ConfigError(problems)
    return GoalProblem(inner, evolve, learner)


def stored_plan(folder: Path) -> GoalProblem:
    """Settings stored in the folder of a run. Raises ConfigError."""
    path = folder / CONFIG_FILE
    try:
        raw, _ = parse_yaml(read_plain(path, TEXT_BYTES), str(path))
    except OSError as e:
        found = f"found no {CONFIG_FILE} in {str(folder)!r} ({e.strerror})"
        raise ConfigError([f"--resume: {found}, expected results/<run>"]) from None
    if not isinstance(raw, dict) or set(raw) != {"inner", "evolve", "learner"}:
        raise ConfigError([f"{path}: expected the sections inner, evolve and learner, as evolve_goals.py writes them"])
    return make_plan({name: value for part in raw.values() for name, value in (part or {}).items()})


def folder_of(plan: GoalProblem, results: Path, run_dir: Path | None = None) -> Path:
    """A new one, with config.yaml in it."""
    families = "_".join(filter(None, (plan.evolve.goal_family, plan.evolve.start_family)))
    default = f"{plan.inner.env_name}_{families}_{time.strftime('%Y-%m-%d-%H%M%S')}_seed{plan.inner.seed}"
    name = plan.inner.exp_name or default
    if not re.fullmatch(r"[\w.+=-]+", name) or set(name) == {"."}:
        raise ConfigError([f"--exp-name: found {name!r}, expected letters, digits and . _ - + ="])
    folder = empty_folder(run_dir) if run_dir else new_folder(results / name)
    write_atomic(str(folder / CONFIG_FILE), to_yaml(plan).encode())
    return folder


def check_workers(workers: int | None, chunk_size: int) -> None:
    """Raises ConfigError."""
    if workers is None:
        return
    if not 1 <= workers <= MOST_WORKERS:
        raise ConfigError([f"--workers: found {workers}, expected 1 to {MOST_WORKERS}"])
    if chunk_size == 0 and workers > 1:
        raise ConfigError([f"--workers: found {workers}, expected 1: the run was begun with all members in one chunk"])


def run(plan: GoalProblem, folder: Path, workers: int | None = None, wandb: str | None = None) -> int:
    """All generations that are left, then the comparison."""
    evolve, inner = plan.evolve, plan.inner
    torch.set_num_threads(inner.threads)
    interrupt.advise(f"continue with: {shlex.join([*commands.typed(PROG), '--resume', str(folder)])}")
    space = plan.space()
    families = f"goals {evolve.goal_family or 'plain'}, starts {evolve.start_family or 'plain'}"

    def shown(generation: Generation) -> None:
        g, began = evolution.history[-1], time.monotonic()
        picture(folder / PICTURE, space, evolution, f"{inner.env_name}, {families}")
        figures = {"score": g.score, "plain": g.plain, "perturbed": g.perturbed, "best": g.best}
        board.write(g.generation, {**figures, "diverged": g.diverged})
        seconds = generation.seconds + time.monotonic() - began
        left = seconds * (evolve.generations - generation.number)
        line = f"generation {g.generation:3d}  " + "  ".join(f"{name} {value:.3f}" for name, value in figures.items())
        diverged = f"  {g.diverged} diverged" if g.diverged else ""
        log.info("%s  %.0f s, %.0f s left%s", line, seconds, left, diverged)

    with contextlib.ExitStack() as stack:
        for context in (locked(folder), followed(wandb, folder)):
            stack.enter_context(context)
        stop = stack.enter_context(interrupt.gently())
        engine = stack.enter_context(engine_of(folder, workers, inner.threads))
        evolution = GoalEvolution(folder, evolve, inner.seed, space.names, GoalMembers(plan, engine), [shown])
        board = stack.enter_context(contextlib.closing(Board(folder)))
        if not evolution.run(stop):
            return interrupt.stopped(commands.called(PROG))
    text = summary(inner.env_name, families, evolve, evolution, folder)
    write_atomic(str(folder / "summary.txt"), text.encode())
    Console().print(text, end="", markup=False, highlight=False, soft_wrap=True)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    log.setLevel(logging.INFO)
    args = build_parser().parse(argv)
    own = ("resume", "results_dir", "run_dir", "workers", "wandb")
    given = {n: v for n, v in vars(args).items() if v is not None and n not in own}

    def work() -> int:
        check_wandb(args.wandb)
        if args.resume is None:
            plan = make_plan({"chunk_size": CHUNK, **given} if args.workers is not None else given)
            check_workers(args.workers, plan.evolve.chunk_size)
            folder = folder_of(plan, Path(args.results_dir), args.run_dir and Path(args.run_dir))
            return run(plan, folder, args.workers, args.wandb)
        if given:
            raise ConfigError([f"--resume goes on with the values it was begun with: found {flag(next(iter(given)))}"])
        plan = stored_plan(Path(args.resume))
        check_workers(args.workers, plan.evolve.chunk_size)
        return run(plan, Path(args.resume), args.workers, args.wandb)

    return exit_code(PROG, work, (RunError, ExchangeError, SimulatorError, ValueError))


if __name__ == "__main__":
    interrupt.run(main)
