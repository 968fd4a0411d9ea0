#!/usr/bin/env python3
"""Writes the report of a study again, out of its folder: while it runs, after it was stopped, or of hpbandster's."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("study_report.py")  # before all that takes time to import

import logging
from dataclasses import dataclass
from typing import List, Optional

import tyro
from typing_extensions import Annotated

from envolve.core import commands
from envolve.experiments.command_line import parse
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.hpo.report import write_report
from envolve.outer.hpo.trial_log import TrialLog

HELP = """\
Rewrite the report of a hyperparameter search: summary.txt (also printed), best.yaml (the complete best configuration),
importance.json, and the pictures parallel_coordinates.png, budget_loss.png, importance.png.

  envolve report results/cartpole_nes            also while the search runs; it is not disturbed
  envolve report results/cartpole_nes --out /tmp/look
  envolve report ~/old_bohb_run                  a folder that hpbandster wrote

Input: results.json and configs.json (hpbandster's format) and study.yaml. Without study.yaml, best.yaml is not written
and the axes of the pictures cover only the values tried. Exit codes: 0 written, 1 no trial has succeeded yet, 2 wrong
arguments or files that cannot be read or written, 130 Ctrl-C, 143 SIGTERM."""


@dataclass
class Args:
    """Arguments of study_report.py."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Folder of the study: the --run-dir of optimize_params.py."""
    out: Annotated[Optional[Path], tyro.conf.arg(metavar="DIR")] = None
    """Folder for the report, created if it does not exist. Default: the study's own folder."""


def complain(text: object) -> None:
    print(f"{commands.called('study_report.py')}: {text}", file=sys.stderr)


def report(args: Args) -> int:
    """-> exit code. Raises ConfigError, OSError."""
    if not (args.folder / "results.json").exists():
        near = "" if args.folder.exists() else commands.near_file(str(args.folder))
        complain(f"{args.folder / 'results.json'}: found no such file, expected the folder of a study{near}")
        return 2
    study = None
    if (args.folder / "study.yaml").exists():
        from envolve.outer.hpo.study import read_study  # needs ConfigSpace, which hpbandster's folders can do without

        study = read_study(args.folder / "study.yaml")
    records = TrialLog(args.folder).read(repair=False)  # a torn line may be one that is just being written
    out = args.out if args.out is not None else args.folder
    out.mkdir(parents=True, exist_ok=True)
    print(write_report(out, study, records, run_dir=args.folder))
    return 0 if any(r.result.loss < float("inf") for r in records) else 1


def main(argv: Optional[List[str]] = None) -> int:
    args = parse("study_report.py", Args, argv, HELP)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        return report(args)
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called("study_report.py"))
    except ConfigError as e:
        complain(e)
    except ImportError as e:
        complain(e)
    except OSError as e:
        complain(f"{e.filename}: {e.strerror}")
    return 2


if __name__ == "__main__":
    interrupt.run(main)
