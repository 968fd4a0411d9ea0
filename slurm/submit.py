#!/usr/bin/env python3
"""Runs masters and workers on a SLURM cluster and keeps them running until the masters are complete.

  envolve submit --masters 2 --run-dir results/my_study -- configs/spaces/cartpole_syn_env.yaml
  envolve submit --workers 64 --run-dir results/my_run -- default_config_cartpole_syn_env.yaml
  envolve submit --run-dir results/my_run             go on watching (also after this program was killed)
  envolve submit --run-dir results/my_run --stop      end all jobs of this run; it can be continued

It submits two job arrays (masters.sh, workers.sh), polls the queue, resubmits tasks that died, and stops the workers
when their master has ended. Jobs that reach their time limit save their state and requeue themselves. Run this program
in tmux or with nohup on the login node; it needs hardly any CPU time. If it ends, the jobs continue, but tasks that die
are not resubmitted until you start it again.

After --, give a study, a configuration with options of GTN_master.py, or any command. {BOHB_ID}, {MASTERS}, {RUN_DIR}
and {SYNC_DIR} are replaced in it. For example, two runs with different random seeds:

  envolve submit --masters 2 --run-dir results/two -- default_config_cartpole_syn_env.yaml --seed {BOHB_ID}

Logs: RUN_DIR/slurm/log/. Settings of your cluster: --setup FILE (module load ...), --sbatch=OPTION.
Details: docs/slurm.md."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("submit.py")  # before all that takes time to import

import argparse
import contextlib
import fcntl
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any

from envolve.core import commands
from envolve.slurm import batch
from envolve.slurm.arrays import act, say
from envolve.slurm.commands import (
    COMMAND,
    CONFIG,
    MASTER,
    WORKER,
    Exit,
    SetupError,
    exit_file,
    kind_of,
    read_exit,
    split_words,
    write_text,
)
from envolve.slurm.fleet import Fleet, new_name

EXIT_CODES = """\
Exit codes: 0 all masters are complete, 1 at least one was given up, 2 wrong arguments or SLURM refused the first jobs
(none of them stays in the queue), 130 and 143 stopped watching (the jobs continue)."""
STATE = "state.json"
PYTHON = ["python3", str(Path(__file__).resolve())]  # wherever one stands


def at_least(least: int) -> Any:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number of at least {least}")
        return int(text)

    return number


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="submit.py", description=__doc__, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run-dir", type=Path, required=True, metavar="DIR", help="folder of the run, visible on all nodes"
    )
    run = parser.add_argument_group("the run")
    run.add_argument("--masters", type=at_least(1), default=1, metavar="M", help="number of masters (default: 1)")
    run.add_argument(
        "--workers",
        dest="workers_per_master",
        metavar="W",
        type=at_least(1),
        default=3,
        help="workers of each (default: 3)",
    )
    run.add_argument("--python", default=sys.executable, metavar="FILE", help="Python on the nodes (default: this one)")
    run.add_argument("--setup", type=Path, metavar="FILE", help="script of bash commands that every task runs first")
    jobs = parser.add_argument_group("the jobs")
    jobs.add_argument("--partition", metavar="NAME", help="sbatch --partition")
    jobs.add_argument(
        "--time", metavar="T", default="1-00:00:00", help="time limit of one job, e.g. 08:00:00 (default: a day)"
    )
    jobs.add_argument("--mem", metavar="SIZE", help="memory of one task, e.g. 2G")
    jobs.add_argument("--cpus", type=at_least(1), default=1, metavar="N", help="CPUs per worker (default: 1)")
    jobs.add_argument("--master-cpus", type=at_least(1), default=1, metavar="N", help="CPUs per master (default: 1)")
    jobs.add_argument(
        "--lead",
        type=at_least(5),
        default=120,
        metavar="S",
        help="seconds before the time limit when a task is told to stop and requeue (default: 120)",
    )
    jobs.add_argument(
        "--sbatch",
        action="append",
        default=[],
        metavar="OPTION",
        help="any other sbatch option, e.g. --sbatch=--qos=low",
    )
    jobs.add_argument(
        "--worker-sbatch", action="append", default=[], metavar="OPTION", help="sbatch option for workers only"
    )
    jobs.add_argument("--max-running", type=at_least(1), metavar="N", help="most workers running at the same time")
    watch = parser.add_argument_group("watching")
    watch.add_argument(
        "--poll", type=float, default=15, metavar="S", help="seconds between checks of the queue (default: 15)"
    )
    watch.add_argument(
        "--max-submits",
        type=at_least(1),
        default=20,
        metavar="N",
        help="most submits of one task before it is given up (default: 20)",
    )
    watch.add_argument(
        "--retry", action="store_true", help="submit tasks again that were given up, and restart the count of submits"
    )
    watch.add_argument("--once", action="store_true", help="check once and exit (for cron); exit code 130 if not done")
    watch.add_argument("--stop", action="store_true", help="cancel all jobs of this run and exit")
    return parser


# ---------------------------------------------------------------------------------------------------- begin or go on


def open_fleet(args: argparse.Namespace, run_dir: Path) -> Fleet:
    """Fleet stored in this folder, or a new one. Raises SetupError, ValueError, OSError."""
    path = run_dir / "slurm" / STATE
    asked = fleet_of(args, run_dir) if args.words else None
    if not path.exists():
        if asked is None:
            raise SetupError(f"{run_dir}: no run was begun here; found no STUDY, CONFIG or command after --")
        path.parent.joinpath("log").mkdir(parents=True, exist_ok=True)
        asked.save(path)
        return asked
    fleet = Fleet.load(path)
    if asked is not None:
        if not any(task.sent for task in fleet.tasks):  # nothing came of it
            asked.name, fleet = fleet.name, asked
        pairs = {
            "masters": (fleet.masters, asked.masters),
            "workers per master": (fleet.workers_per_master, asked.workers_per_master),
            "command": (shlex.join(fleet.settings["words"]), shlex.join(asked.settings["words"])),
        }
        for what, (old, new) in pairs.items():
            if old != new:
                raise SetupError(f"{run_dir}: begun with {what} {old}, found {new}; choose another --run-dir")
        fleet.settings, fleet.max_sends = asked.settings, asked.max_sends  # time limits and the like may change
    if args.retry:
        fleet.forgive()
        for task in fleet.tasks:
            file = exit_file(run_dir, task.role, task.index)
            file.with_suffix(".given_up").unlink(missing_ok=True)
            ended = read_exit(file)
            if ended is not None and ended.code != 0:
                file.unlink()
    fleet.save(path)
    return fleet


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
    settings: dict[str, Any] = {
        "words": words,
        "python": args.python,
        "setup": str(args.setup.resolve()) if args.setup else "",
        "lead": args.lead,
        MASTER: sbatch_options(args, args.master_cpus, args.sbatch),
        WORKER: sbatch_options(args, args.cpus, args.sbatch + args.worker_sbatch),
        "max_running": None,
    }
    if args.setup and not args.setup.is_file():
        raise SetupError(f"--setup: found no file {args.setup}")
    size, workers = batch.most_indices(), args.masters * args.workers_per_master
    arrays = -(-workers // size) if size else 1
    if args.max_running:
        if args.max_running < arrays:
            why = f"{workers} workers are {arrays} arrays where MaxArraySize is {size}"
            raise SetupError(f"--max-running: found {args.max_running}, expected at least {arrays}: {why}")
        settings["max_running"] = args.max_running // arrays  # of each
    return Fleet(args.masters, args.workers_per_master, kind, settings, new_name(run_dir), args.max_submits, size)


def sbatch_options(args: argparse.Namespace, cpus: int, others: Sequence[str]) -> list[str]:
    options = [f"--time={args.time}", f"--cpus-per-task={cpus}", f"--signal=B:USR1@{args.lead}", "--requeue"]
    options += [f"--partition={args.partition}"] if args.partition else []
    options += [f"--mem={args.mem}"] if args.mem else []
    return [*options, *others]


# ---------------------------------------------------------------------------------------------------- act


def exits(fleet: Fleet, run_dir: Path) -> dict[tuple[str, int], Exit]:
    found = {(t.role, t.index): read_exit(exit_file(run_dir, t.role, t.index)) for t in fleet.tasks}
    return {key: ended for key, ended in found.items() if ended is not None}


def step(fleet: Fleet, run_dir: Path, first: bool) -> int | None:
    """Checks the queue once and acts -> the exit code, once the run is over. first: nothing was submitted yet; if SLURM
    refuses a part, nothing is submitted. Raises BatchError."""
    path = run_dir / "slurm" / STATE
    known = exits(fleet, run_dir)
    actions = fleet.look(time.time(), batch.queue([*fleet.job_names()]), known)
    for task in actions.gone:
        ended = known.get((task.role, task.index))
        left = f"; exit code of its program: {ended.code} ({ended.reason})" if ended else ""
        why = batch.why(task.job) if task.job else "it was never seen in the queue"
        say(f"{task.label} (job {task.job or '?'}) is gone: {why or 'SLURM has forgotten why'}{left}")
    for note in actions.notes:
        say(note)
    for task in fleet.tasks:
        if task.given_up:  # for the tasks that wait for it, which do not read the state
            file = exit_file(run_dir, task.role, task.index).with_suffix(".given_up")
            if not file.exists():
                write_text(file, task.given_up + "\n")
    fleet.save(path)  # before anything is sent: a death in between costs one submit of the limit, never a double
    batch.cancel(actions.cancel)
    return act(fleet, run_dir, actions, path, first)


# ---------------------------------------------------------------------------------------------------- the command


@contextlib.contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Locks the run for one watcher. Raises SetupError."""
    (run_dir / "slurm").mkdir(parents=True, exist_ok=True)
    with open(run_dir / "slurm" / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"{run_dir}: another submit.py watches this run") from None
        except OSError:
            pass  # a file system without locks
        yield


def watch(fleet: Fleet, run_dir: Path, poll: float, once: bool) -> int:
    told, first = "", not any(task.sent for task in fleet.tasks)
    while True:
        try:
            code = step(fleet, run_dir, first)
            told = ""
        except batch.BatchError as e:
            if first:  # a wrong partition, say: trying again does not help
                raise SetupError(str(e)) from None
            if str(e) != told:
                say(f"{e}; trying again every {poll:g} s")
            told, code = str(e), None
        first = False
        if code is not None:
            say("all masters are complete" if code == 0 else "not all masters are complete; see above, and --retry")
            return code
        if once:
            return 130
        time.sleep(poll)


def main(argv: Sequence[str] | None = None) -> int:
    options, words = split_words(sys.argv[1:] if argv is None else argv)
    args = commands.parse_with("submit.py", build_parser(), options, argparse.Namespace(words=words))
    run_dir = args.run_dir.resolve()

    watch_on = f"the jobs go on; watch them again with: {shlex.join(again(run_dir))}"
    interrupt.advise(watch_on)
    try:
        with alone(run_dir):
            fleet = open_fleet(args, run_dir)
            if args.stop:
                jobs = [e.job for e in batch.queue([*fleet.job_names()])]
                batch.cancel(jobs)
                fleet.forgive()
                fleet.save(run_dir / "slurm" / STATE)
                say(f"cancelled {len(jobs)} tasks; continue with: {shlex.join(again(run_dir))}")
                return 0
            return watch(fleet, run_dir, args.poll, args.once)
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called("submit.py"), watch_on)
    except (SetupError, ValueError, OSError, batch.BatchError) as e:
        print(f"{commands.called('submit.py')}: {e}", file=sys.stderr)
        return 2


def again(run_dir: Path) -> list[str]:
    words = commands.typed("submit.py") if commands.called("submit.py") != "submit.py" else PYTHON
    return [*words, "--run-dir", str(run_dir)]


if __name__ == "__main__":
    interrupt.run(main)
