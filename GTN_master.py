#!/usr/bin/env python3
"""Evolves a world: python3 GTN_master.py default_config_cartpole_syn_env.yaml --single. The loop is in outer/run.py."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from outer.config import Config, ConfigError, describe, dump_config, load_config
from outer.machine import ExchangeError

HELP = """\
Evolves a synthetic environment or a reward network, as the configuration says.

  python3 GTN_master.py default_config_cartpole_syn_env.yaml --single      all on this machine
  python3 GTN_master.py default_config_cartpole_syn_env.yaml --check       show what would run
  python3 GTN_master.py --resume results/<run_id>                          go on after Ctrl-C

Without --single, workers are started by hand or by SLURM, before or after: python3 GTN_worker.py 0 0 &"""

EXIT_CODES = """\
Exit codes: 0 the run is complete, 1 it cannot start or go on, 2 wrong arguments or configuration, 130 Ctrl-C (resumable)."""

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
        "--num-workers", type=int, metavar="W", help="with --single: how many workers (default: one per core)"
    )
    parser.add_argument("--resume", metavar="DIR", help="continue the run in results/<run_id>")
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
        "--check", action="store_true", help="validate the configuration, print what would run, and stop"
    )
    return parser


def read_config(args: argparse.Namespace) -> Config:
    """The configuration with its overrides; on resume the one that the run stored."""
    if args.resume:
        given = [
            name
            for name, used in (("CONFIG", args.config), ("--set", args.overrides), ("--seed", args.seed is not None))
            if used
        ]
        if given:
            raise ConfigError(
                [f"--resume continues a run with the configuration it stored: found {given[0]}, expected none"]
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
    stem = f"{name}_{time.strftime('%Y-%m-%d-%H%M%S')}_seed{config.data['seed']}"
    for suffix in ["", *(f"_{i}" for i in range(2, 1000))]:
        try:
            (results / (stem + suffix)).mkdir(parents=True)
            return results / (stem + suffix)
        except FileExistsError:
            if not (results / (stem + suffix)).is_dir():  # a file stands where the folder should be
                raise
    raise FileExistsError(f"{results / stem}: a thousand runs began in this second")


def prepare(args: argparse.Namespace, config: Config) -> Path:
    """The run's folder, with config.yaml in it."""
    if args.resume:
        return Path(args.resume)
    run_dir = new_run_dir(Path(args.results_dir), config)
    (run_dir / CONFIG_FILE).write_text(dump_config(config, {"command": " ".join(sys.argv)}))
    return run_dir


def execute(args: argparse.Namespace, config: Config, run_dir: Path) -> int:
    import torch
    from rich.console import Console

    from outer.dispatch import Dispatcher
    from outer.local_workers import LocalWorkers
    from outer.report import LiveTable, summary_text
    from outer.run import Run

    torch.set_num_threads(1)  # the master adds small vectors: a second thread would only take a core from a worker
    single = args.single or args.num_workers is not None or config.data["agents"]["gtn"]["mode"] == "single"
    sync_dir = args.sync_dir or str(run_dir / "sync" if single else Path(args.results_dir) / "GTN_sync")
    with Dispatcher(sync_dir, args.bohb_id, run_dir.name) as dispatcher:
        run = Run(config, run_dir, dispatcher, resume=bool(args.resume))
        count = args.num_workers or len(os.sched_getaffinity(0))
        workers = LocalWorkers(count, sync_dir, args.bohb_id, run_dir) if single else None
        try:
            if workers:
                workers.start()
                dispatcher.on_wait = workers.poll
            title = f"{config.data['env_name']}  {run_dir}" + (
                f"  {count} local workers" if workers else f"  sync {sync_dir}"
            )
            with LiveTable(run.gtn.max_iterations, title) as table:
                summary = run.execute(table)
        finally:
            if workers:
                workers.close()
    Console(soft_wrap=True).print("\n" + summary_text(summary), markup=False, highlight=False)
    return 0


def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        if args.num_workers is not None and args.num_workers < 1:
            raise ConfigError([f"--num-workers: found {args.num_workers}, expected at least 1"])
        config = read_config(args)
    except ConfigError as e:
        print(f"GTN_master.py: {e}", file=sys.stderr)
        return 2
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if args.check:
        print(describe(config))
        return 0

    def stop(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)  # a batch system ends a job like Ctrl-C
    run_dir = None
    try:
        run_dir = prepare(args, config)
        return execute(args, config, run_dir)
    except KeyboardInterrupt:
        if run_dir:
            print(f"\nstopped; go on with: python3 GTN_master.py --resume {run_dir}", file=sys.stderr)
        return 130
    except (ExchangeError, OSError, ValueError) as e:
        print(f"GTN_master.py: {e}", file=sys.stderr)
        if run_dir and (run_dir / "checkpoint.pt").exists():
            print(
                f"finished generations are kept; go on with: python3 GTN_master.py --resume {run_dir}", file=sys.stderr
            )
        return 1


if __name__ == "__main__":
    sys.exit(main())
