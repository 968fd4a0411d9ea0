#!/usr/bin/env python3
"""Evolves a world: envolve run default_config_cartpole_syn_env.yaml --single.

Its arguments are in outer/arguments.py, its loop in outer/run.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("GTN_master.py")  # before all that takes time to import

from envolve.outer.early import compile_early

if interrupt.listens():  # this process is the command
    compile_early(sys.argv[1:])

import argparse
import contextlib
import errno
import logging
import os
import shlex
import threading
from collections.abc import Iterator

from envolve.core import commands
from envolve.core.memory import shortage
from envolve.outer.arguments import PROG, build_parser, exchange_of, read_config, recall_exchange, workers_here
from envolve.outer.checkpoint import BusyError, CheckpointError, RunError, UnscoredError
from envolve.outer.config.load import Config, ConfigError, describe, store_config
from envolve.outer.exchange.machine import OWN_SYNC, ExchangeError
from envolve.outer.names import CHECKPOINT, SCORES
from envolve.outer.ray.address import FILES


def prepare(args: argparse.Namespace, config: Config) -> Path:
    """The run's folder, with config.yaml in it."""
    if args.resume:
        return Path(args.resume)
    from envolve.outer.launch import forget_unused, new_run_dir

    run_dir = new_run_dir(Path(args.results_dir), config)
    try:
        store_config(run_dir, config, {"command": " ".join(sys.argv), **exchange_of(args, config)})
    except BaseException:
        forget_unused(run_dir, config)
        raise
    return run_dir


def execute(args: argparse.Namespace, config: Config, run_dir: Path) -> int:
    import torch
    from rich.console import Console

    from envolve.outer.launch import conduct
    from envolve.outer.reporting.summary import summary_text
    from envolve.outer.reporting.wandb_run import followed

    torch.set_num_threads(1)  # the master adds small vectors: a second thread would only take a core from a worker
    own_sync, single = run_dir / OWN_SYNC, workers_here(args, config)
    count = args.num_workers or len(os.sched_getaffinity(0))
    workers = args.num_workers if args.workers_on != FILES else count if single else None
    with followed(args.wandb, run_dir):
        summary = conduct(
            config,
            run_dir,
            resume=bool(args.resume),
            workers=workers,
            bohb_id=args.bohb_id or 0,
            sync_dir=args.sync_dir or str(own_sync if single else run_dir.parent / "GTN_sync"),
            quit_workers=args.quit_workers,
            workers_on=args.workers_on,
        )
    text = summary if isinstance(summary, str) else summary_text(summary)
    Console(soft_wrap=True).print("\n" + text, markup=False, highlight=False)
    return 0


def resume_command(args: argparse.Namespace, run_dir: Path) -> str:
    """What a user types to go on with this run."""
    on = args.workers_on if args.workers_on != FILES else None
    options = [("--workers-on", on), ("--workers", args.num_workers), ("--sync-dir", args.sync_dir)]
    options += [("--bohb-id", args.bohb_id or None), ("--wandb", args.wandb)]
    words = [*commands.typed(PROG), "--resume", str(run_dir)]
    for name, value in options:
        words += [name, str(value)] if value is not None else []
    return shlex.join(words + ["--single"] * (args.single and bool(args.sync_dir)))


def explain(e: Exception) -> str:
    """One line for people. Of an OSError: the file, what the system said, and what helps."""
    if not isinstance(e, OSError) or e.strerror is None:
        return str(e)
    helps = {errno.ENOSPC: "free some space", errno.EDQUOT: "free some space"}
    helps |= dict.fromkeys(
        (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST),
        "choose another folder with --results-dir",
    )
    return (f"{e.filename}: " if e.filename else "") + e.strerror + (f"; {helps[e.errno]}" if e.errno in helps else "")


def goes_on(e: Exception, run_dir: Path, config: Config) -> bool:
    """Whether the same command can go on with what this run has finished: not with a damaged checkpoint, nor with code
    of the user's own that fails, nor beside another process."""
    from envolve.outer.distil.kept import FOLDER
    from envolve.outer.search.strategy import SearchError
    from envolve.outer.search.target import ranks

    if isinstance(e, (BusyError, CheckpointError, SearchError, UnscoredError)):
        return False
    if any((run_dir / name).exists() for name in (CHECKPOINT, FOLDER)):  # experts end before the first generation
        return True
    with contextlib.suppress(OSError):  # a ranking has no checkpoint, only the scores of its rounds
        return ranks(config.data) and (run_dir / SCORES).stat().st_size > 0
    return False


def device_is_here(args: argparse.Namespace, config: Config, single: bool) -> bool:
    """False, and the reason is printed, if local workers cannot use the device. single: there are local workers; other
    machines may have what this one has not, so without them it is a warning."""
    if config.data["device"] == "cpu" or not (single or args.check):
        return True
    from envolve.outer.evaluate.device import unusable

    problems = unusable(config.data["device"], "device")
    if problems and single:
        print(f"{commands.called(PROG)}: {problems[0]}", file=sys.stderr)
        return False
    for problem in problems:
        print(f"warning: {problem}; workers on other machines may have it", file=sys.stderr)
    return True


@contextlib.contextmanager
def quiet_threads() -> Iterator[None]:
    """A full disk is no traceback of TensorBoard's thread: its next write raises the error in the main thread."""
    before = threading.excepthook

    def failed(failure: threading.ExceptHookArgs) -> None:
        if not isinstance(failure.exc_value, OSError):
            before(failure)

    threading.excepthook = failed
    try:
        yield
    finally:
        threading.excepthook = before


def after_failure(e: Exception, args: argparse.Namespace, run_dir: Path | None, config: Config) -> None:
    """Says in one line what ended the run, and how to go on with what it has finished. Raises a RuntimeError that no
    user can have caused."""
    short = shortage(e)
    if isinstance(e, RuntimeError) and not isinstance(e, (RunError, ExchangeError)) and not short:
        raise e
    print(f"{commands.called(PROG)}: {short or explain(e)}", file=sys.stderr)
    if run_dir is None:
        return
    if not args.resume:
        from envolve.outer.launch import forget_unused

        forget_unused(run_dir, config)
    if goes_on(e, run_dir, config):
        print(f"finished generations are kept; continue with: {resume_command(args, run_dir)}", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    args = commands.parse_with(PROG, build_parser(), argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        config = read_config(args)
    except ConfigError as e:
        print(f"{commands.called(PROG)}: {e}", file=sys.stderr)
        return 2
    begun = recall_exchange(args)
    if not device_is_here(args, config, workers_here(args, config)):
        return 2
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if args.check:
        print(describe(config))
        return 0
    if begun:
        print(begun, file=sys.stderr)
    run_dir, go_on = None, None
    try:
        with quiet_threads():
            run_dir = prepare(args, config)
            go_on = f"continue with: {resume_command(args, run_dir)}"
            interrupt.advise(go_on)
            return execute(args, config, run_dir)
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called(PROG), go_on)
    except (RunError, ExchangeError, OSError, ValueError, RuntimeError, MemoryError) as e:
        after_failure(e, args, run_dir, config)
        return 1


if __name__ == "__main__":
    interrupt.run(main)
