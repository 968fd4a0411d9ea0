"""Arguments of submit.py, and the fleet that they describe."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envolve.slurm import batch
from envolve.slurm.commands import COMMAND, CONFIG, MASTER, WORKER, SetupError, kind_of
from envolve.slurm.fleet import Fleet, new_name

EXIT_CODES = """\
Exit codes: 0 all masters are complete, 1 at least one was given up, 2 wrong arguments, or SLURM refused the first jobs
(none of them stays in the queue), 130 Ctrl-C and 143 SIGTERM stop only the watching (the jobs continue)."""


def at_least(least: int) -> Any:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number of at least {least}")
        return int(text)

    return number


def seconds(text: str) -> float:
    """A time above 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number of seconds above 0")
    return found


def build_parser(description: str | None = None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="submit.py",
        description=description,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of the run, on a file system that all nodes share",
    )
    run = parser.add_argument_group("the run")
    run.add_argument("--masters", type=at_least(1), default=1, metavar="N", help="number of masters (default: 1)")
    run.add_argument(
        "--workers",
        dest="workers_per_master",
        metavar="N",
        type=at_least(1),
        default=3,
        help="workers per master (default: 3)",
    )
    run.add_argument(
        "--workers-per-task",
        metavar="N",
        type=at_least(1),
        default=1,
        help="workers that share one task of the job array; the task gets N times --cpus (default: 1)",
    )
    run.add_argument(
        "--python", default=sys.executable, metavar="FILE", help="Python interpreter on the nodes (default: this one)"
    )
    run.add_argument(
        "--setup", type=Path, metavar="FILE", help="bash script that every task runs first, e.g. with module load"
    )
    jobs = parser.add_argument_group("the jobs")
    jobs.add_argument("--partition", metavar="NAME", help="sbatch --partition")
    jobs.add_argument(
        "--time", metavar="TIME", default="1-00:00:00", help="time limit of one job, e.g. 08:00:00 (default: a day)"
    )
    jobs.add_argument("--mem", metavar="SIZE", help="memory of one task, e.g. 2G")
    jobs.add_argument("--cpus", type=at_least(1), default=1, metavar="N", help="CPUs per worker (default: 1)")
    jobs.add_argument("--master-cpus", type=at_least(1), default=1, metavar="N", help="CPUs per master (default: 1)")
    jobs.add_argument(
        "--lead",
        type=at_least(5),
        default=120,
        metavar="SECONDS",
        help="a task is told to stop and requeue this long before its time limit (default: 120)",
    )
    jobs.add_argument(
        "--sbatch",
        action="append",
        default=[],
        metavar="OPTION",
        help="additional sbatch option for all jobs, e.g. --sbatch=--qos=low; may be repeated",
    )
    jobs.add_argument(
        "--worker-sbatch",
        action="append",
        default=[],
        metavar="OPTION",
        help="additional sbatch option for workers only; may be repeated",
    )
    jobs.add_argument("--max-running", type=at_least(1), metavar="N", help="workers that run at the same time, at most")
    watch = parser.add_argument_group("watching")
    watch.add_argument(
        "--poll", type=seconds, default=15, metavar="SECONDS", help="time between checks of the queue (default: 15)"
    )
    watch.add_argument(
        "--max-submits",
        type=at_least(1),
        default=20,
        metavar="N",
        help="submissions of one task before it is given up (default: 20)",
    )
    watch.add_argument(
        "--retry", action="store_true", help="resubmit tasks that were given up, and reset their number of submissions"
    )
    watch.add_argument(
        "--once",
        action="store_true",
        help="check the queue once and exit, e.g. in a cron job (exit code 130: not complete)",
    )
    watch.add_argument("--stop", action="store_true", help="cancel all jobs of this run and exit")
    return parser


def fleet_of(args: argparse.Namespace, run_dir: Path) -> Fleet:
    words = list(args.words)
    kind = kind_of(words)
    if kind != COMMAND:
        words[0] = str(Path(words[0]).resolve())
    if kind == CONFIG and args.masters > 1 and not any("{BOHB_ID}" in word for word in words):
        raise SetupError(
            f"found {args.masters} masters with one and the same run, expected something that tells them apart, "
            "e.g. --seed {BOHB_ID}"
        )
    each = min(args.workers_per_task, args.workers_per_master)
    settings: dict[str, Any] = {
        "words": words,
        "python": args.python,
        "setup": str(args.setup.resolve()) if args.setup else "",
        "lead": args.lead,
        MASTER: sbatch_options(args, args.master_cpus, args.sbatch),
        WORKER: sbatch_options(args, args.cpus * each, args.sbatch + args.worker_sbatch),
        "max_running": None,
    }
    if args.setup and not args.setup.is_file():
        raise SetupError(f"--setup: found no file {args.setup}")
    size, tasks = batch.most_indices(), args.masters * -(-args.workers_per_master // each)
    arrays = -(-tasks // size) if size else 1
    if args.max_running:
        if args.max_running < arrays * each:
            why = f"{tasks} tasks of {each} workers are {arrays} arrays where MaxArraySize is {size or 'unknown'}"
            raise SetupError(f"--max-running: found {args.max_running}, expected at least {arrays * each}: {why}")
        settings["max_running"] = args.max_running // each // arrays  # tasks of each array
    sizes = args.masters, args.workers_per_master
    return Fleet(*sizes, kind, settings, new_name(run_dir), args.max_submits, size, each)


def sbatch_options(args: argparse.Namespace, cpus: int, others: Sequence[str]) -> list[str]:
    options = [f"--time={args.time}", f"--cpus-per-task={cpus}", f"--signal=B:USR1@{args.lead}", "--requeue"]
    options += [f"--partition={args.partition}"] if args.partition else []
    options += [f"--mem={args.mem}"] if args.mem else []
    return [*options, *others]
