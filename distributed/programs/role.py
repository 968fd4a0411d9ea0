"""Runs one program in its own process: python3 -m envolve.distributed.programs.role ROLE --exp-dir DIR

All inputs are in the run's folder, made by experiments/train_distributed.py. A restarted program resumes from the state
of its predecessor. Exit codes: 0 the run is complete, 1 restart the program, 2 a restart would not help, 130 and 143
stopped.
"""

from __future__ import annotations

from envolve.core import interrupt

if __name__ == "__main__":
    # before all that takes time to import; the supervisor waits for it
    interrupt.listen("envolve.distributed.programs.role", limit=2.6)

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from envolve.distributed.engine.calls import HubGone
from envolve.distributed.engine.client import RemoteHub
from envolve.distributed.engine.server import HubServer
from envolve.distributed.files.board import chart_name
from envolve.distributed.files.params import TrainParamsBase
from envolve.distributed.files.params_file import frozen
from envolve.distributed.files.run_folder import REPLAY, RunSettings, is_done, read_settings
from envolve.distributed.programs.cpus import RANK, number_of_threads, number_of_worker
from envolve.distributed.programs.running import PAUSE, run_collector, run_evaluator, run_learner
from envolve.distributed.programs.supervisor import DONE, FAILED, STUCK, WRONG
from envolve.distributed.programs.turns import make_hub, widths_of
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.reporting.board import Board

log = logging.getLogger("envolve")

ROLES = ("learner", "replay", "collector", "evaluator")
LOOPBACK = "127.0.0.1"
FAREWELL = 10.0  # s that a complete run's hub stays, so that collectors hear of it


def run_replay(params: TrainParamsBase, settings: RunSettings, folder: Path, bind: str) -> None:
    hub = make_hub(params, widths_of(params), settings, folder)
    server = HubServer(hub, folder, bind)
    try:
        while not hub.finished and not is_done(folder):
            time.sleep(PAUSE)
        hub.finish()
        time.sleep(FAREWELL)
    finally:
        server.close()


def run_role(role: str, folder: Path, worker: int, bind: str) -> None:
    """Runs the program to the end of the run. Raises RunError, ConfigError, HubGone, OSError."""
    params, settings = frozen(folder), read_settings(folder)
    if not 0 <= worker < settings.num_collectors:
        most = settings.num_collectors - 1
        raise ConfigError([f"--worker (without it {RANK}): found {worker}, expected 0 to {most}"])
    own = {"learner": "learner", "replay": REPLAY, "collector": f"train/{worker}", "evaluator": "eval"}[role]
    (folder / own).mkdir(parents=True, exist_ok=True)
    with locked(folder / own):
        if role == "replay":
            run_replay(params, settings, folder, bind)
            return
        board, done = Board(folder / chart_name(role, worker)), partial(is_done, folder)
        if role == "learner":
            if not is_done(folder):
                run_learner(params, settings, folder, RemoteHub(folder), board)
        elif role == "collector":
            run_collector(params, settings, worker, RemoteHub(folder), board, done)
        else:
            run_evaluator(params, settings, folder, board, done)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m envolve.distributed.programs.role", description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--exp-dir", type=Path, required=True, metavar="DIR", help="the run's folder")
    parser.add_argument(
        "--worker",
        type=int,
        default=None,
        metavar="I",
        help="of a collector: its number, from 0; default: SLURM_PROCID",
    )
    parser.add_argument(
        "--bind",
        default=None,
        metavar="ADDRESS",
        help=f"of the replay: where it listens (default: {LOOPBACK}), for a run on several machines one that the "
        "others reach; 0.0.0.0: at all of them, and the others go by the host name",
    )
    args = parser.parse_args(argv)
    logging.basicConfig(format=f"{args.role}: %(message)s", stream=sys.stderr)
    log.setLevel(logging.INFO)
    try:
        torch.set_num_threads(number_of_threads())
        worker = 0
        if args.role == "collector":
            worker = number_of_worker() if args.worker is None else args.worker
        elif args.worker is not None:
            raise ConfigError([f"--worker: found it with {args.role}, expected it with collector alone"])
        if args.role != "replay" and args.bind is not None:
            raise ConfigError([f"--bind: found it with {args.role}, expected it with replay alone"])
        run_role(args.role, args.exp_dir, worker, args.bind or LOOPBACK)
    except ConfigError as e:
        log.error("%s", e)
        return WRONG
    except RunError as e:
        log.error("%s", e)
        return STUCK
    except (HubGone, OSError) as e:
        log.error("%s", e)
        return DONE if is_done(args.exp_dir) else FAILED
    except KeyboardInterrupt:
        return interrupt.stopped("envolve.distributed.programs.role", interrupt.GO_ON)
    return DONE


if __name__ == "__main__":
    interrupt.run(main)
