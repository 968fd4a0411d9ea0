"""What ``envolve run`` is asked for: its arguments, their configuration, and where its workers are."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from envolve.core import commands
from envolve.outer.config.header import header_of
from envolve.outer.config.load import CONFIG_FILE, Config, ConfigError, TaskChoice, load_config, read_kwargs
from envolve.outer.exchange.machine import OWN_SYNC
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
