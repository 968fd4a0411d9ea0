#!/usr/bin/env python3
"""Starts one worker: envolve worker 0 0 &. The work itself is in outer/exchange/worker.py. Python 3.8."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    # before all that takes time to import; the master waits for it
    interrupt.listen("GTN_worker.py", limit=1.5)

import argparse
import contextlib
import logging
import os
from typing import List, Optional

from envolve.core import commands, plugins
from envolve.outer.exchange.evaluation import Evaluate
from envolve.outer.exchange.heartbeat import MOST_DIGITS
from envolve.outer.exchange.machine import ExchangeError, Files, Host
from envolve.outer.exchange.worker import SecondWorkerError, Worker

HELP = """\
Start a worker. It takes members of the population from a master, trains an agent in each member's world, and returns
the scores. Start one per core, each with its own ID, before or after the master:

  envolve worker 0 0 &
  envolve worker 0 1 &
  envolve run default_config_cartpole_syn_env.yaml

BOHB_ID must equal the master's --bohb-id (default: 0). --sync-dir must be a folder that master and workers share. A
worker may be killed and started again at any time: another worker takes over its work, and results do not depend on
which worker did what. With 'GTN_master.py CONFIG --single' the master starts its own workers, and this command is not
needed."""

PROG = "GTN_worker.py"  # the former script
EXIT_CODES = """\
Exit codes: 0 told to quit by the master, 1 a worker with these ids is already running or the folder cannot be used,
2 wrong arguments, 130 Ctrl-C, 143 SIGTERM."""


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number 0, 1, 2, ... of at most {MOST_DIGITS} digits")
    return int(text)


def _heartbeat(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) <= 60:
            return seconds
    raise argparse.ArgumentTypeError(f"found {text!r:.40}, expected above 0 and at most 60 seconds")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROG, description=HELP, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bohb_id", type=_id, metavar="BOHB_ID", help="--bohb-id of the master to work for")
    parser.add_argument(
        "id", type=_id, metavar="ID", help="number of this worker; no other worker of the master may have it"
    )
    parser.add_argument(
        "--sync-dir",
        default="results/GTN_sync",
        metavar="DIR",
        help="folder shared by master and workers (default: %(default)s)",
    )
    parser.add_argument(
        "--heartbeat",
        type=_heartbeat,
        default=1.0,
        metavar="SECONDS",
        help="time between heartbeats (default: %(default)s)",
    )
    parser.add_argument(
        "--plugins",
        action="append",
        default=[],
        metavar="DIR",
        help="folder of a run, or of several runs: allows the worker to execute Python files there that the master "
        "names with their SHA-256 (default: no such file is executed)",
    )
    parser.add_argument("--parent-pid", type=int, help=argparse.SUPPRESS)  # a local worker ends with its master
    return parser


def _load() -> Evaluate:
    from envolve.envs.outside import watch
    from envolve.outer.evaluate.networks import evaluate  # late: it imports the learners and their compiled kernels

    watch.end_process = True  # an environment that hangs in compiled code costs this process, and the chunk goes on
    return evaluate


def main(argv: Optional[List[str]] = None, evaluate: Optional[Evaluate] = None) -> int:
    """Runs a worker and returns the exit code. ``evaluate`` replaces the real evaluation, for tests and benchmarks."""
    args = commands.parse_with(PROG, build_parser(), argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    interrupt.advise(f"worker {args.id} of BOHB-ID {args.bohb_id} starts again with the same command")
    for folder in args.plugins:
        plugins.allow(folder)
    plugins.never(args.sync_dir)
    host = Host()
    parent_started = host.start_time(args.parent_pid) if args.parent_pid else 0

    def check_parent() -> None:
        # From the heartbeat's thread, because the main one may be in a long evaluation, now of no use to anybody.
        if args.parent_pid and (parent_started < 0 or not host.alive(args.parent_pid, parent_started)):
            worker.close()
            os._exit(0)

    try:
        load = _load if evaluate is None else lambda: evaluate
        worker = Worker(args.bohb_id, args.id, Files(args.sync_dir), host, load, args.heartbeat, check_parent)
        interrupt.at_forced_end(worker.close)  # an evaluation does not hear; then the master shall know at once
        worker.run()
    except (SecondWorkerError, ExchangeError) as e:
        print(f"{commands.called(PROG)}: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called(PROG))
    return 0


if __name__ == "__main__":
    interrupt.run(main)
