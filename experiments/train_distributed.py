#!/usr/bin/env python3
"""Trains SAC, TD3 or contrastive RL in a user's Gymnasium environment, with any number of collectors. The programs are
in distributed/; docs/distributed.md tells how they work together."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("train_distributed.py")  # before all that takes time to import

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import tyro

from envolve.core import commands
from envolve.core.supervisor import StartError
from envolve.distributed.files.board import CollectorReport, EvaluatorReport, LearnerReport, chart_name
from envolve.distributed.files.params import TrainParamsBase, fields_help
from envolve.distributed.files.params_file import freeze
from envolve.distributed.files.run_folder import RunSettings, is_done, keep_settings
from envolve.distributed.programs.collector import Collector
from envolve.distributed.programs.cpus import deal
from envolve.distributed.programs.evaluator import EVALUATIONS, Evaluator
from envolve.distributed.programs.launch import Told, roles_of
from envolve.distributed.programs.learner import Learner
from envolve.distributed.programs.supervisor import DONE, STOPPED, Supervisor
from envolve.distributed.programs.turns import (
    CollectorProgram,
    EvaluatorProgram,
    LearnerProgram,
    make_hub,
    run_embedded,
    widths_of,
)
from envolve.experiments.command_line import exit_code, parse
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray.address import HERE, PROGRAMS_ON, check_instead
from envolve.outer.reporting.board import Board
from envolve.outer.reporting.wandb_run import check_wandb, followed

EXIT_CODES = """
Exit codes: 0 complete, 1 it cannot start or continue, 2 wrong arguments or configuration, 130 Ctrl-C, 143 SIGTERM
(resumable)."""
HELP = f"""\
Train an agent in your own environment; a class TrainParams describes both. In each iteration, all collectors add
transitions to one replay buffer, the learner makes num_steps_per_iter gradient steps, and all collectors receive the
new policy.

  envolve distributed --params my_params.py --config my.json --run-dir results/mine
  envolve distributed ... --collectors 8 --workers-on ray:HOST:PORT    on the machines of a Ray cluster (docs/ray.md)

my_params.py:
  class TrainParams(TrainParamsBase):          # from envolve.distributed.files.params
      def env_ctor(self, seed, **kwargs):
          return gymnasium.make("HalfCheetah-v5", **kwargs)

algorithm = "CRL" trains a goal-conditioned agent. Its environments need dictionary observations with the keys
observation, achieved_goal and desired_goal, as in Gymnasium-Robotics.

The folder of the run contains copies of both files, the policies, evaluations and TensorBoard events. The same command
continues an interrupted run from the copies. To watch a run: tensorboard --logdir DIR

Attributes of TrainParams, which "train_params" in the JSON overrides (docs/train_params.md):
{fields_help()}
{EXIT_CODES}"""
RESULTS = Path("results")
MOST_COLLECTORS = 1024
STOP_SECONDS = 3.2  # until a program that was told to end is killed; every file of a run is replaced whole
QUICK = {
    "num_iter": 4, "num_steps_per_iter": 20, "horizon": 100, "n_buffer_init_episodes": 3, "n_eval_episodes": 1,
    "eval_period": 2, "checkpoint_period": 2, "log_period": 1,
}  # fmt: skip


@dataclass(kw_only=True)
class Args:
    params: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """Python file that defines the class TrainParams."""
    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE.json")] = None
    """JSON file that is read into TrainParams.env_config. Its key "train_params" overrides attributes of TrainParams;
    its key "curriculum" changes parameters of the environment during training (docs/train_params.md)."""
    exp_dir: Annotated[Path | None, tyro.conf.arg(name="run-dir", metavar="DIR")] = None
    """Folder of the run. A run found there is continued. Default: results/<name of --params>."""
    num_collectors: Annotated[int, tyro.conf.arg(name="collectors")] = 1
    """Number of collectors, which divide the environment steps of an iteration among themselves."""
    mode: Literal["lockstep", "async"] = "lockstep"
    """lockstep: collectors and learner wait for each other, and equal seeds give bit-identical results. async: they run
    concurrently, and a collector's policy is at most two versions old."""
    processes: tyro.conf.FlagCreatePairsOff[bool] = False
    """Run each program (collector, learner, evaluator) in its own process, and restart it when it crashes. --mode async
    requires this flag. Results with lockstep do not depend on it. For several machines see docs/distributed.md."""
    workers_on: Annotated[str, tyro.conf.arg(metavar="PLACE", help=PROGRAMS_ON)] = HERE
    seed: int = 0
    """Random seed of the whole run."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Also log to this Weights & Biases project, with models and films (docs/tracking.md)."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """Quick look: a few iterations of short episodes."""


def train(args: Args) -> int:
    settings = RunSettings(args.seed, args.num_collectors, args.mode)
    if not 1 <= args.num_collectors <= MOST_COLLECTORS:
        raise ConfigError([f"--collectors: found {args.num_collectors}, expected 1 to {MOST_COLLECTORS}"])
    on_ray = args.workers_on != HERE
    check_instead(args.workers_on, {}, {"--processes": args.processes})
    if args.mode == "async" and not (args.processes or on_ray):
        found = "found all programs in one process, where they take turns"
        raise ConfigError([f"--mode async: {found}; expected --processes"])
    if not 0 <= args.seed < 2**63:
        raise ConfigError([f"--seed: found {args.seed}, expected 0 to 2^63 - 1"])
    if not args.params.is_file():
        raise ConfigError([f"--params: found no file {args.params}, expected one with the class TrainParams"])
    check_wandb(args.wandb)
    folder = args.exp_dir or RESULTS / args.params.stem
    params = freeze(folder, args.params, args.config, QUICK if args.quick else None)
    keep_settings(folder, settings)
    with locked(folder), followed(args.wandb, folder):
        if is_done(folder):
            print(f"{folder}: this run is complete")
            return 0
        if args.processes:
            widths_of(params)  # what is wrong with the environment is said here and not in a log
            n = args.num_collectors
            logs = folder / "logs"
            told = Told(logs, ["replay", "learner", "evaluator"])
            code = Supervisor(roles_of(folder, n, deal(n)), logs, stop_seconds=STOP_SECONDS).run(told)
            told()
            if code == STOPPED:
                raise KeyboardInterrupt
            if code != DONE:
                return code
        elif on_ray:
            from envolve.distributed.ray.run import train_on_ray  # late: Ray is an extra

            widths_of(params)
            if wrong := train_on_ray(settings, folder, args.workers_on):
                raise RunError(wrong)
        else:
            embedded(params, settings, folder)
    print(f"complete: {folder / EVALUATIONS}")
    return 0


def embedded(params: TrainParamsBase, settings: RunSettings, folder: Path) -> None:
    """All programs in this process."""

    def board_of(role: str, worker: int = 0) -> Board:
        return Board(folder / chart_name(role, worker))

    keys, widths = settings.keys(), widths_of(params)
    hub = make_hub(params, widths, settings, folder)
    learner = Learner(params, widths, keys, folder)
    program = LearnerProgram(learner, hub, settings.lockstep, LearnerReport(board_of("learner")))
    n = settings.num_collectors
    collectors = [Collector(params, i, n, keys, settings.lockstep) for i in range(n)]
    evaluator = Evaluator(params, keys, folder)
    try:
        reports = [CollectorReport(board_of("collector", i), params.num_steps_per_iter) for i in range(n)]
        programs = [CollectorProgram(c, hub, report) for c, report in zip(collectors, reports)]
        run_embedded(program, programs, EvaluatorProgram(evaluator, EvaluatorReport(board_of("evaluator"))))
    finally:
        evaluator.close()
        for collector in collectors:
            collector.close()


def main(argv: Sequence[str] | None = None) -> int:
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("envolve").setLevel(logging.INFO)
    torch.set_num_threads(1)
    args = parse("train_distributed.py", Args, argv, HELP)
    commands.existing("train_distributed.py", "--params", str(args.params))
    return exit_code(
        "train_distributed.py", lambda: train(args), (RunError, StartError, ExchangeError, ValueError), interrupt.GO_ON
    )


if __name__ == "__main__":
    interrupt.run(main)
