#!/usr/bin/env python3
"""Evolves a world: python3 GTN_master.py default_config_cartpole_syn_env.yaml --single. The loop is in outer/run.py."""

from __future__ import annotations

from outer import interrupt

if __name__ == "__main__":
    interrupt.listen("GTN_master.py")  # before all that takes time to import
    import sys

    from outer.early import compile_early

    compile_early(sys.argv[1:])

import argparse
import contextlib
import errno
import logging
import os
import re
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from envs.world_file import write_atomic
from outer.checkpoint import CheckpointError, RunError, locked
from outer.config import Config, ConfigError, describe, dump_config, load_config
from outer.folders import new_folder
from outer.machine import ExchangeError
from outer.memory import shortage

if TYPE_CHECKING:
    from outer.report import LiveTable

HELP = """\
Evolves a synthetic environment or a reward network, as the configuration says.

  python3 GTN_master.py default_config_cartpole_syn_env.yaml --single      all on this machine
  python3 GTN_master.py default_config_cartpole_syn_env.yaml --check       show what would run
  python3 GTN_master.py --resume results/<run_id>                          go on after Ctrl-C

Without --single, workers are started by hand or by SLURM, before or after: python3 GTN_worker.py 0 0 &"""

EXIT_CODES = """\
Exit codes: 0 the run is complete, 1 it cannot start or go on, 2 wrong arguments or configuration,
130 Ctrl-C, 143 SIGTERM (resumable)."""

CONFIG_FILE = "config.yaml"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="GTN_master.py", description=HELP, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a default_config_*.yaml or your own")
    parser.add_argument(
        "--single", action="store_true", help="start local workers, one per core, and end them with the run"
    )
    parser.add_argument(
        "--num-workers", type=int, metavar="W", help="how many local workers; implies --single (default: one per core)"
    )
    parser.add_argument(
        "--resume", metavar="DIR", help="continue the run in results/<run_id>; with local workers if it was begun so"
    )
    parser.add_argument("--seed", type=int, metavar="S", help="overrides the configuration's seed")
    parser.add_argument(
        "--set", dest="overrides", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
        help="override a value, e.g. --set agents.gtn.max_iterations=3 agents.ddqn.lr=1e-4",
    )  # fmt: skip
    parser.add_argument(
        "--bohb-id", type=int, default=0, metavar="B", help="which workers are this master's (default: 0)"
    )
    parser.add_argument(
        "--results-dir", default="results", metavar="DIR", help="where runs are kept (default: results)"
    )
    parser.add_argument(
        "--sync-dir", metavar="DIR",
        help="folder of the exchange (default: <results-dir>/GTN_sync, with --single the run's own sync/)",
    )  # fmt: skip
    parser.add_argument(
        "--quit-workers", action="store_true", help="tell the workers to end when the run is complete"
    )
    parser.add_argument(
        "--check", action="store_true", help="validate the configuration, print what would run, and stop"
    )
    return parser


def read_config(args: argparse.Namespace) -> Config:
    """The configuration with its overrides; on resume the one that the run stored. Raises ConfigError."""
    limits = (("--num-workers", args.num_workers, 1, 10_000), ("--bohb-id", args.bohb_id, 0, 10**6))
    for name, value, least, most in limits:
        if value is not None and not least <= value <= most:
            raise ConfigError([f"{name}: found {value}, expected at least {least} and at most {most}"])
    if not args.config and args.overrides and "=" not in args.overrides[-1]:
        args.config = args.overrides.pop()  # --set takes every word that follows it, also a CONFIG at the end
    if args.resume is not None:
        given = [
            name
            for name, used in (("CONFIG", args.config), ("--set", args.overrides), ("--seed", args.seed is not None))
            if used
        ]
        if given:
            raise ConfigError(
                [f"--resume continues a run with the configuration it stored: found {given[0]}, expected none"]
            )
        if not (Path(args.resume) / CONFIG_FILE).is_file():
            raise ConfigError(
                [f"--resume: found no {CONFIG_FILE} in {args.resume!r}, expected the folder of a run: results/<run_id>"]
            )
        return load_config(Path(args.resume) / CONFIG_FILE)
    if not args.config:
        raise ConfigError(
            ["found no CONFIG, expected a file such as default_config_cartpole_syn_env.yaml (or --resume DIR)"]
        )
    seed = [] if args.seed is None else [f"seed={args.seed}"]
    return load_config(args.config, args.overrides + seed)


def new_run_dir(results: Path, config: Config) -> Path:
    """results/<name of the file>_<date>-<time>_seed<S>, made here; a number is added if it exists."""
    name = re.sub(r"^default_config_", "", Path(config.path).stem)
    return new_folder(results / f"{name}_{time.strftime('%Y-%m-%d-%H%M%S')}_seed{config.data['seed']}")


def prepare(args: argparse.Namespace, config: Config) -> Path:
    """The run's folder, with config.yaml in it."""
    if args.resume:
        return Path(args.resume)
    run_dir = new_run_dir(Path(args.results_dir), config)
    try:
        text = dump_config(config, {"command": " ".join(sys.argv)})
        write_atomic(str(run_dir / CONFIG_FILE), text.encode())
    except BaseException:
        forget_unused(run_dir)
        raise
    return run_dir


def forget_unused(run_dir: Path) -> None:
    """Removes the folder of a run that could not even start, unless something else is in it."""
    with contextlib.suppress(OSError):
        if set(os.listdir(run_dir)) <= {CONFIG_FILE}:
            (run_dir / CONFIG_FILE).unlink(missing_ok=True)
            run_dir.rmdir()


@contextlib.contextmanager
def log_above(table: LiveTable) -> Iterator[None]:
    """While a live table is drawn in the terminal, log lines are printed above it, not through it."""
    root = logging.getLogger()
    before = root.handlers[:]
    if table.live and sys.stderr.isatty():
        from rich.highlighter import NullHighlighter
        from rich.logging import RichHandler

        root.handlers = [
            RichHandler(
                console=table.console, show_time=False, show_level=False, show_path=False, highlighter=NullHighlighter()
            )
        ]
    try:
        yield
    finally:
        root.handlers = before


def execute(args: argparse.Namespace, config: Config, run_dir: Path) -> int:
    import torch
    from rich.console import Console

    from outer.compiled import compiled_beside
    from outer.dispatch import Dispatcher
    from outer.local_workers import LocalWorkers
    from outer.ranking import Ranking
    from outer.report import LiveTable
    from outer.run import Run
    from outer.summary import summary_text
    from outer.target import ranks

    torch.set_num_threads(1)  # the master adds small vectors: a second thread would only take a core from a worker
    own_sync, gtn_mode = run_dir / "sync", config.data["agents"]["gtn"]["mode"]
    single = args.single or args.num_workers is not None or gtn_mode == "single"
    single |= bool(args.resume) and own_sync.is_dir() and not args.sync_dir  # as it was begun
    sync_dir = args.sync_dir or str(own_sync if single else run_dir.parent / "GTN_sync")
    kernels = compiled_beside(config.data) if single else contextlib.nullcontext()
    with locked(run_dir), kernels, Dispatcher(sync_dir, args.bohb_id, run_dir.resolve().name) as dispatcher:
        kind = Ranking if ranks(config.data) else Run
        run = kind(config, run_dir, dispatcher, resume=bool(args.resume))
        count = args.num_workers or len(os.sched_getaffinity(0))
        workers = LocalWorkers(count, sync_dir, args.bohb_id, run_dir) if single else None
        try:
            if workers:
                workers.start()
                dispatcher.on_wait = workers.poll
            who = f"{count} local worker{'s' * (count != 1)}" if workers else f"sync {sync_dir}"
            title = f"{config.data['env_name']}  {run_dir}  {who}"
            solvable = isinstance(run, Run) and run.target.kind != "rn" and run.gtn.quit_when_solved
            with LiveTable(run.gtn.max_iterations, title, ends_early=solvable) as table, log_above(table):
                if workers:
                    table.note("workers are starting; the first run on a machine compiles their kernels")
                elif not dispatcher.workers():
                    command = f"python3 GTN_worker.py {args.bohb_id} 0 --sync-dir {shlex.quote(sync_dir)} &"
                    table.note(f"waiting for workers; start some, one per core: {command}")
                summary = run.execute(table)
            if args.quit_workers:
                dispatcher.close(quit_workers=True)
        finally:
            if workers:
                workers.close()
    text = summary if isinstance(summary, str) else summary_text(summary)
    Console(soft_wrap=True).print("\n" + text, markup=False, highlight=False)
    return 0


def resume_command(args: argparse.Namespace, run_dir: Path) -> str:
    """What a user types to go on with this run."""
    options = [("--num-workers", args.num_workers), ("--sync-dir", args.sync_dir), ("--bohb-id", args.bohb_id or None)]
    words = ["python3", "GTN_master.py", "--resume", str(run_dir)]
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


def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        config = read_config(args)
    except ConfigError as e:
        print(f"GTN_master.py: {e}", file=sys.stderr)
        return 2
    here = args.check or args.single or args.num_workers is not None
    if config.data["device"] != "cpu" and here:
        from outer.device import unusable

        if problems := unusable(config.data["device"], "device"):
            words = "; workers on another machine may have it: start the master without --single there"
            print(f"GTN_master.py: {problems[0]}{words * args.check}", file=sys.stderr)
            return 2
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if args.check:
        print(describe(config))
        return 0

    before = threading.excepthook

    def thread_failed(failure: threading.ExceptHookArgs) -> None:
        if not isinstance(failure.exc_value, OSError):  # TensorBoard's thread; its next write raises it in the main one
            before(failure)

    threading.excepthook = thread_failed
    run_dir, go_on = None, None
    try:
        run_dir = prepare(args, config)
        go_on = f"go on with: {resume_command(args, run_dir)}"
        interrupt.advise(go_on)
        return execute(args, config, run_dir)
    except KeyboardInterrupt:
        return interrupt.stopped("GTN_master.py", go_on)
    except (RunError, ExchangeError, OSError, ValueError, RuntimeError, MemoryError) as e:
        short = shortage(e)
        if isinstance(e, RuntimeError) and not isinstance(e, (RunError, ExchangeError)) and not short:
            raise
        print(f"GTN_master.py: {short or explain(e)}", file=sys.stderr)
        if short and run_dir and not args.resume and not (run_dir / "checkpoint.pt").exists():
            shutil.rmtree(run_dir, ignore_errors=True)  # no generation was finished
            return 1
        if run_dir and not args.resume:
            forget_unused(run_dir)
        if run_dir and (run_dir / CONFIG_FILE).exists() and not isinstance(e, CheckpointError):
            print(f"finished generations are kept; go on with: {resume_command(args, run_dir)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    interrupt.run(main)
