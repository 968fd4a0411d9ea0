#!/usr/bin/env python3
"""Trains goal-conditioned agents: envolve goal --task reacher"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("train_goal.py")  # before all that takes time to import

import logging
import re
import shlex
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from rich.console import Console

from envolve.core import commands
from envolve.core.memory import shortage
from envolve.envs.sim.simulator import SimulatorError
from envolve.envs.worlds.file import write_atomic
from envolve.experiments.command_line import empty_folder, exit_code
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.goals.arguments import GoalPlan, Parser, build_parser, flag, make_plan, stored_plan
from envolve.outer.goals.report import GoalTable
from envolve.outer.goals.run import POLICY, GoalRun, Interrupted
from envolve.outer.goals.video import check_film, film_of, film_path
from envolve.outer.names import CHECKPOINT, CONFIG_FILE
from envolve.outer.reporting.folders import new_folder
from envolve.outer.reporting.wandb_run import check_wandb, followed
from envolve.outer.shapers.video import VideoError

log = logging.getLogger("envolve")
SIZES = "--h-dim, --n-hidden, --num-envs, --population, --batch-size or --max-replay-size"  # these decide the memory


def folder_of(plan: GoalPlan, results: Path, run_dir: Path | None = None) -> Path:
    """A new one, with config.yaml in it."""
    name = plan.run.exp_name or f"{plan.run.env_name}_{time.strftime('%Y-%m-%d-%H%M%S')}_seed{plan.run.seed}"
    if not re.fullmatch(r"[\w.+=-]+", name) or set(name) == {"."}:
        raise ConfigError([f"--exp-name: found {name!r}, expected letters, digits and . _ - + ="])
    folder = empty_folder(run_dir) if run_dir else new_folder(results / name)
    write_atomic(str(folder / CONFIG_FILE), plan.to_yaml().encode())
    return folder


def read(parser: Parser, argv: Sequence[str] | None) -> tuple[GoalPlan, Path, bool, Path | None, str | None]:
    """The plan, its folder, whether to resume it, the file of the video, if there is to be one, and the project in W&B.
    Raises ConfigError, VideoError, OSError."""
    args = parser.parse(argv)
    check_wandb(args.wandb)
    film = film_path(args.video)
    if args.resume is None:
        plan = make_plan(args)
        check_film(plan, film)
        check_wandb(plan.run.project_name if plan.run.log_wandb else None)
        folder = folder_of(plan, Path(args.results_dir), args.run_dir and Path(args.run_dir))
        return plan, folder, False, film and folder / film, args.wandb  # in the run's folder, unless FILE says where
    given = [name for name, value in vars(args).items() if value not in (None, [])]
    others = [name for name in given if name not in ("resume", "results_dir", "video", "wandb")]
    if others:
        words = "--resume goes on with the values it was begun with"
        raise ConfigError([f"{words}: found {flag(others[0])}, expected none"])
    plan, folder = stored_plan(Path(args.resume)), Path(args.resume)
    check_film(plan, film)
    return plan, folder, True, film and folder / film, args.wandb


def tracked(plan: GoalPlan, folder: Path, wandb: str | None) -> AbstractContextManager[list[Path]]:
    """W&B, which --wandb PROJECT asks for, or the older --log-wandb."""
    run = plan.run
    if wandb is None and not run.log_wandb:
        return followed(None, folder)
    mode = None if run.wandb_mode == "online" else run.wandb_mode  # None: WANDB_MODE decides
    return followed(wandb or run.project_name, folder, mode, run.group_name or None)


def train(plan: GoalPlan, folder: Path, resume: bool, film: Path | None, wandb: str | None = None) -> int:
    torch.set_num_threads(plan.run.threads)
    interrupt.advise(f"continue with: {shlex.join([*commands.typed('train_goal.py'), '--resume', str(folder)])}")
    try:
        with locked(folder), tracked(plan, folder, wandb) as films, interrupt.gently() as stop:
            run = GoalRun(plan, folder, resume)
            if not run.storable:
                interrupt.advise(f"this run cannot go on; its policies so far are in {folder / POLICY}")
            title = f"{plan.run.env_name}  {folder}  {plan.run.population} x {plan.learner.num_envs} environments"
            with GoalTable(plan.run.num_timesteps, title, metrics=run.training.learner.metrics) as table:
                text = run.execute(table, stop)
            interrupt.advise(f"the run is complete: {folder / 'summary.txt'}")
            if film is not None:
                text += film_of(run, film)
                films.append(film)
    except Interrupted:
        return interrupt.stopped(commands.called("train_goal.py"))
    except (MemoryError, RuntimeError, ValueError) as e:
        if shortage(e) and not resume and not any((folder / name).exists() for name in (POLICY, CHECKPOINT)):
            shutil.rmtree(folder, ignore_errors=True)  # nothing was finished
        raise
    Console().print(text, end="", markup=False, highlight=False, soft_wrap=True)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    log.setLevel(logging.INFO)  # ours alone: PyOpenGL has things to say, too
    parser = build_parser()
    errors = (RunError, SimulatorError, VideoError, ValueError, ImportError)
    return exit_code("train_goal.py", lambda: train(*read(parser, argv)), errors, sizes=SIZES)


if __name__ == "__main__":
    interrupt.run(main)
