#!/usr/bin/env python3
"""Evolves a world: envolve run default_config_cartpole_syn_env.yaml --single. The loop is in outer/run.py."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("GTN_master.py")  # before all that takes time to import

from envolve.outer.early import compile_early

if interrupt.listens() and Path(sys.argv[0]).name in ("envolve run", "GTN_master.py", "run.py"):
    # this process is the command, and no other one that reads its words
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
from envolve.outer.checkpoint import BusyError, CheckpointError, RunError, UnscoredError
from envolve.outer.config.header import header_of
from envolve.outer.config.load import (
    CONFIG_FILE,
    Config,
    ConfigError,
    TaskChoice,
    describe,
    load_config,
    read_kwargs,
    store_config,
)
from envolve.outer.exchange.machine import OWN_SYNC, ExchangeError
from envolve.outer.names import CHECKPOINT, SCORES
from envolve.outer.ray.address import FILES, RAY, WORKERS_ON, check_on_ray

HELP = """\
Evolve a synthetic environment or a reward network, as described by a configuration file.

  envolve run default_config_cartpole_syn_env.yaml --single      all on this machine
  envolve run default_config_cartpole_syn_env.yaml --check       validate it and print what would run
  envolve run --resume results/<run_id>                          go on after Ctrl-C
  envolve run CONFIG --workers-on ray:HOST:PORT                  on the machines of a Ray cluster

Without --single, --workers or --workers-on ray, start the workers yourself (envolve worker 0 0 &) or with SLURM, before
or after the master."""

EXIT_CODES = """\
Exit codes: 0 complete, 1 it cannot start or continue, 2 wrong arguments or configuration,
130 Ctrl-C, 143 SIGTERM (resumable)."""

PROG = "GTN_master.py"  # the former script


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROG, description=HELP, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "config", nargs="?", metavar="CONFIG", help="configuration: a default_config_*.yaml or your own file"
    )
    parser.add_argument(
        "--single", action="store_true", help="start local workers, one per core, and stop them at the end of the run"
    )
    parser.add_argument(
        "--workers",
        dest="num_workers",
        type=int,
        metavar="N",
        help="number of local workers; implies --single (default: one per core)",
    )
    parser.add_argument(
        "--resume",
        metavar="DIR",
        help="continue the run in this folder with its stored configuration, and with local workers if it had them",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="random seed; overrides the one in CONFIG")
    parser.add_argument(
        "--task",
        metavar="NAME",
        help="task instead of the one in CONFIG, with the same settings of world and agents: gymnasium:ID, a built-in "
        "task, or my_task.py:Class, a class in a file in the folder of CONFIG",
    )
    parser.add_argument(
        "--wrappers",
        nargs="+",
        default=[],
        metavar="MODULE:CLASS",
        help="wrappers around the environment, with --task gymnasium:ID",
    )
    parser.add_argument(
        "--env-kwargs",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="keyword arguments for the environment, with --task",
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="values that override CONFIG, e.g. agents.gtn.max_iterations=3 agents.ddqn.lr=1e-4",
    )
    parser.add_argument(
        "--bohb-id",
        type=int,
        metavar="N",
        help="number of this master, which its workers name as BOHB_ID (default: 0; with --resume as stored)",
    )
    parser.add_argument(
        "--results-dir", default="results", metavar="DIR", help="parent folder of new runs (default: results)"
    )
    parser.add_argument(
        "--sync-dir",
        metavar="DIR",
        help="folder shared by master and workers (default: <results-dir>/GTN_sync; with --single, sync/ in the run's "
        "folder; with --resume, as stored)",
    )
    parser.add_argument(
        "--workers-on",
        default=FILES,
        metavar="PLACE",
        help=WORKERS_ON,
    )
    parser.add_argument("--wandb", metavar="PROJECT", help=commands.WANDB_HELP)
    parser.add_argument("--quit-workers", action="store_true", help="tell the workers to exit when the run is complete")
    parser.add_argument(
        "--check", action="store_true", help="validate the configuration, print what would run, and exit"
    )
    return parser


def read_config(args: argparse.Namespace) -> Config:
    """The configuration with its overrides; on resume the one that the run stored. Raises ConfigError."""
    limits = (("--workers", args.num_workers, 1, 10_000), ("--bohb-id", args.bohb_id, 0, 10**6))
    for name, value, least, most in limits:
        if value is not None and not least <= value <= most:
            raise ConfigError([f"{name}: found {value}, expected at least {least} and at most {most}"])
    of_files = {"--sync-dir": args.sync_dir, "--bohb-id": args.bohb_id, "--quit-workers": args.quit_workers}
    check_on_ray(args.workers_on, of_files)
    if args.wandb is not None:
        from envolve.outer.reporting.wandb_run import check_wandb

        check_wandb(args.wandb)
    if not args.config and args.overrides and "=" not in args.overrides[-1]:
        args.config = args.overrides.pop()  # --set takes every word that follows it, also a CONFIG at the end
    if args.resume is not None:
        given = [
            name
            for name, used in (
                ("CONFIG", args.config),
                ("--set", args.overrides),
                ("--seed", args.seed is not None),
                ("--task", args.task),
                ("--wrappers", args.wrappers),
                ("--env-kwargs", args.env_kwargs),
            )
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
    if args.task is None and (args.wrappers or args.env_kwargs):
        found = "--wrappers" if args.wrappers else "--env-kwargs"
        raise ConfigError([f"found {found} without --task, expected both, or envs.<task> in the configuration"])
    task = None if args.task is None else TaskChoice(args.task, args.wrappers, read_kwargs(args.env_kwargs))
    return load_config(args.config, args.overrides + seed, task)


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


def workers_here(args: argparse.Namespace, config: Config) -> bool:
    """Whether workers are started on this machine: as told, as the configuration says, or as the run was begun."""
    if args.workers_on not in (FILES, RAY):
        return False  # on a cluster that runs
    if args.single or args.num_workers is not None or config.data["agents"]["gtn"]["mode"] == "single":
        return True
    return bool(args.resume) and (Path(args.resume) / OWN_SYNC).is_dir() and not args.sync_dir


def exchange_of(args: argparse.Namespace, config: Config) -> dict[str, str]:
    """Lines for the header of config.yaml: where --resume finds the workers of this run."""
    kept = {"sync_dir": os.path.abspath(args.sync_dir)} if args.sync_dir else {}
    kept |= {"bohb_id": str(args.bohb_id)} if args.bohb_id else {}
    return {**kept, "workers": "local"} if kept and workers_here(args, config) else kept


def recall_exchange(args: argparse.Namespace) -> str:
    """Fills in what the run was begun with where --resume is given without -> the line about it, "" if nothing was:
    workers that were started by hand wait there, and nowhere else."""
    if not args.resume or args.workers_on != FILES or (Path(args.resume) / OWN_SYNC).is_dir():
        return ""
    kept = header_of(Path(args.resume) / CONFIG_FILE)
    local = kept.get("workers") == "local"
    if (args.single or args.num_workers is not None) and not local:
        return ""  # workers of its own, with an exchange of their own
    used = []
    if args.sync_dir is None and "sync_dir" in kept:
        args.sync_dir = kept["sync_dir"]
        used += ["--sync-dir", args.sync_dir]
    if args.bohb_id is None and kept.get("bohb_id", "").isdecimal():
        args.bohb_id = int(kept["bohb_id"])
        used += ["--bohb-id", kept["bohb_id"]]
    args.single |= local and bool(used) and args.num_workers is None
    return f"as the run was begun: {shlex.join(used + ['--single'] * (local and args.single))}" if used else ""


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
