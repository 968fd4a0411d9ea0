#!/usr/bin/env python3
"""Several workers of one master in one task of a job array, each on its own CPUs; slurm/task.py starts this.

    python3 slurm/worker_group.py --bohb-id 0 --first 4 --workers 4 --run-dir DIR

A worker that dies is started again. All end with SIGTERM, and by themselves when their master says so. Output goes to
DIR/slurm/log/worker_<BOHB_ID>_<ID>.log. Needs only Python 3.10 and its standard library."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("worker_group.py")  # until main() takes the signals itself

import argparse
import os
import signal
from collections.abc import Sequence
from functools import partial

from envolve.core.child import Child, end
from envolve.core.supervisor import RestartPolicy, StartError, Supervisor
from envolve.slurm.arguments import at_least
from envolve.slurm.commands import EXIT_WRONG, worker_command
from envolve.slurm.cpus import parts
from envolve.slurm.task import SIGNALS, free_signals, say

FIRST_DELAY, MAX_DELAY = 0.5, 30.0  # seconds; a cluster's file system may need its time
STOP_SECONDS = 50.0  # from SIGTERM to SIGKILL; less than task.py waits


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bohb-id", type=at_least(0), default=0, metavar="B", help="index of their master")
    parser.add_argument("--first", type=at_least(0), default=0, metavar="ID", help="id of the first worker")
    parser.add_argument("--workers", type=at_least(1), required=True, metavar="K", help="how many")
    parser.add_argument("--run-dir", type=Path, required=True, metavar="DIR", help="folder of the run")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="Python of the workers")
    parser.add_argument("--study", action="store_true", help="their master works for a study")
    return parser


def children_of(args: argparse.Namespace) -> list[Child]:
    run_dir = args.run_dir.resolve()
    pinned = parts(sorted(os.sched_getaffinity(0)), args.workers)

    def child(i: int, cpus: list[int]) -> Child:
        name = f"worker_{args.bohb_id}_{i}"
        return Child(
            name,
            partial(worker_command, args.python, args.bohb_id, i, run_dir, args.study),
            run_dir / "slurm" / "log" / f"{name}.log",
            environ={"OMP_NUM_THREADS": str(len(cpus))},
            cpus=cpus,
            with_parent=True,
            prepare=free_signals,
            first_delay=FIRST_DELAY,
            max_delay=MAX_DELAY,
        )

    return [child(args.first + i, cpus) for i, cpus in enumerate(pinned)]


def main(argv: Sequence[str] | None = None) -> int:
    """-> 0 if all workers were told to end, else the highest exit code."""
    args = build_parser().parse_args(argv)
    children = children_of(args)
    supervisor = Supervisor(
        dict.fromkeys(children, RestartPolicy((0, EXIT_WRONG))), STOP_SECONDS, tell=lambda _, text, *a: say(text % a)
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        while len(supervisor.codes) < len(children):
            supervisor.look()
            got = signal.sigtimedwait(SIGNALS, 1.0)
            if got is not None and got.si_signo != signal.SIGCHLD:
                return 128 + got.si_signo
        return max(supervisor.codes.values())
    except StartError as e:
        print(f"worker_group.py: {e}", file=sys.stderr)
        return 1
    finally:
        end(children, STOP_SECONDS)


if __name__ == "__main__":
    interrupt.run(main)
