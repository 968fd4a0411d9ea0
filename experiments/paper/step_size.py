#!/usr/bin/env python3
"""The study of step sizes and score transforms on a gridworld: a front of optimize_params.py."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("step_size.py")  # before all that takes time to import

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from envolve.core.places import CODE
from envolve.experiments import optimize_params
from envolve.experiments.command_line import parse
from envolve.experiments.paper.pictures.step_size import FOLDER

HELP = """\
Compare step sizes and score transforms of NES. The command evolves a synthetic environment (SE) of a 2 x 2 room 400
times with different step sizes and score transforms, with and without mirrored sampling. It runs
optimize_params.py configs/spaces/gridworld_step_size.yaml in <results-dir>/gridworld_step_size.

  envolve paper step-size                  start, or continue after an interruption
  envolve paper step-size --quick          40 runs of at most 10 generations
  envolve paper figures step_size          draw the figure

Exit codes: the same as for optimize_params.py."""

STUDY = CODE / "configs" / "spaces" / "gridworld_step_size.yaml"
QUICK = ("stop.trials=40", "budget.least=10", "budget.most=10")


@dataclass
class Args:
    num_workers: Annotated[int | None, tyro.conf.arg(name="workers")] = None
    """Worker processes. Default: one per core."""
    seed: int = 0
    """Random seed of the sampled step sizes and of the runs."""
    set: Annotated[list[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Values that override the study, e.g. stop.trials=100."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """Quick look of about a minute; it writes to <results-dir>/gridworld_step_size_quick."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Parent folder of the study."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Also log the study to this Weights & Biases project (docs/tracking.md)."""


def command(args: Args) -> list[str]:
    """The arguments of optimize_params.py."""
    words = [str(STUDY), "--run-dir", str(args.results_dir / (FOLDER + "_quick" * args.quick))]
    if args.num_workers is not None:
        words += ["--workers", str(args.num_workers)]
    if args.wandb is not None:
        words += ["--wandb", args.wandb]
    return [*words, "--set", f"search.seed={args.seed}", *(QUICK if args.quick else ()), *args.set]


def main(argv: list[str] | None = None) -> int:
    return optimize_params.main(command(parse("step_size.py", Args, argv, HELP)))


if __name__ == "__main__":
    interrupt.run(main)
