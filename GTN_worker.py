#!/usr/bin/env python3
"""Starts one worker: python3 GTN_worker.py 0 0 &. The work itself is in outer/exchange/worker.py. Python 3.8."""

from __future__ import annotations

from envolve.core import interrupt

if __name__ == "__main__":
    # before slow imports; the parent process waits for this one
    interrupt.listen("GTN_worker.py", limit=1.5)

import argparse
import logging
import os
import sys
from typing import List, Optional

from envolve.outer.exchange.machine import ExchangeError, Files, Host
from envolve.outer.exchange.worker import Evaluate, SecondWorkerError, Worker

HELP = """\
A worker receives members of the population from a master, trains an agent in each member's world and returns the
scores. Start one worker per core, each with its own ID, before or after the master:

  python3 GTN_worker.py 0 0 &
  python3 GTN_worker.py 0 1 &
  python3 GTN_master.py default_config_cartpole_syn_env.yaml

BOHB_ID must equal the master's --bohb-id (default: 0). --sync-dir must be a folder that master and workers share.
A worker may be killed and restarted at any time: its work goes to another worker, and results do not depend on the
assignment. With 'GTN_master.py CONFIG --single' the master starts its own workers and this command is not needed."""

EXIT_CODES = """\
Exit codes: 0 the master ended the worker, 1 a worker with these ids is already running or the folder is unusable,
2 wrong arguments, 130 or 143 stopped by Ctrl-C or SIGTERM."""


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number 0, 1, 2, ...")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="GTN_worker.py", description=HELP, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bohb_id", type=_id, metavar="BOHB_ID", help="id of the master to work for: its --bohb-id")
    parser.add_argument("id", type=_id, metavar="ID", help="id of this worker, unique among the workers of its master")
    parser.add_argument(
        "--sync-dir", default="results/GTN_sync", metavar="DIR", help="folder of the exchange (default: %(default)s)"
    )
    parser.add_argument(
        "--heartbeat",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="seconds between signs of life (default: %(default)s)",
    )
    parser.add_argument("--parent-pid", type=int, help=argparse.SUPPRESS)  # a local worker ends with its master
    return parser


def _load() -> Evaluate:
    from envolve.outer.evaluate.networks import evaluate  # late: it imports the learners and their compiled kernels

    return evaluate


def main(argv: Optional[List[str]] = None, evaluate: Optional[Evaluate] = None) -> int:
    """Runs a worker and returns the exit code. ``evaluate`` replaces the real evaluation, for tests and benchmarks."""
    args = build_parser().parse_args(argv)
    if not 0 < args.heartbeat <= 60:
        build_parser().error("--heartbeat must be above 0 and at most 60 seconds")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    interrupt.advise(f"worker {args.id} of BOHB-ID {args.bohb_id} starts again with the same command")
    host = Host()
    parent_started = host.start_time(args.parent_pid) if args.parent_pid else 0

    def check_parent() -> None:
        # From the heartbeat's thread, because the main one may be in a long evaluation that is no longer needed.
        if args.parent_pid and (parent_started < 0 or not host.alive(args.parent_pid, parent_started)):
            worker.close()
            os._exit(0)

    try:
        load = _load if evaluate is None else lambda: evaluate
        worker = Worker(args.bohb_id, args.id, Files(args.sync_dir), host, load, args.heartbeat, check_parent)
        interrupt.at_forced_end(worker.close)  # an evaluation does not hear; then the master shall know at once
        worker.run()
    except (SecondWorkerError, ExchangeError) as e:
        print(f"GTN_worker.py: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupt.stopped("GTN_worker.py")
    return 0


if __name__ == "__main__":
    interrupt.run(main)
