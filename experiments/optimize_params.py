#!/usr/bin/env python3
"""Searches hyperparameters: BOHB over NES over RL. The search is in outer/hpo/optimise.py, an NES master in
outer/hpo/nes_master.py."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    # before all that takes time to import; the search waits for its masters
    interrupt.listen("optimize_params.py", 2.6 if "--nes-master" in sys.argv else interrupt.LIMIT)

import contextlib
import logging
import os
import shlex
import time
from dataclasses import dataclass, field
from typing import Annotated

import torch
import tyro

from envolve.core import commands
from envolve.envs.worlds.file import WorldFileError, write_atomic
from envolve.experiments.command_line import check_count, in_words, parse
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.load import ConfigError, store_config
from envolve.outer.evaluate.device import check_device
from envolve.outer.exchange.engine import Engine
from envolve.outer.exchange.machine import ExchangeError, Host
from envolve.outer.exchange.worker import SecondWorkerError
from envolve.outer.hpo.local_masters import Asked, masters_on_files
from envolve.outer.hpo.nes_master import DONE, Broken, NESMaster
from envolve.outer.hpo.optimise import Copy, Optimiser
from envolve.outer.hpo.optuna_storage import OptunaStorage, storage_file
from envolve.outer.hpo.report import write_report
from envolve.outer.hpo.study import STUDY_FILE, Study, dump_study, read_study
from envolve.outer.hpo.study_board import StudyBoard
from envolve.outer.hpo.study_table import StudyTable
from envolve.outer.launch import forget_unused
from envolve.outer.ray.address import FILES, WORKERS_ON, check_on_ray
from envolve.outer.reporting.folders import new_folder
from envolve.outer.reporting.wandb_run import check_wandb, followed

log = logging.getLogger("envolve")

HELP = """\
Search hyperparameters: BOHB over NES over RL. BOHB proposes configurations, and each trial evaluates one of them. STUDY
defines the search space, the budget and loss of a trial, and when the search ends (docs/hpo.md).

  envolve tune configs/spaces/cartpole_syn_env.yaml          all on this machine
  envolve tune STUDY.yaml --check                            validate it and print what would be searched
  envolve tune --resume results/<run_id>                     go on after Ctrl-C
  envolve tune STUDY.yaml --workers-on ray:HOST:PORT         on the machines of a Ray cluster (docs/ray.md)

On several machines that share the folder DIR, here with two NES masters and two workers per master:

  envolve worker 0 0 --sync-dir DIR/sync &     envolve worker 0 1 --sync-dir DIR/sync &
  envolve worker 1 0 --sync-dir DIR/sync &     envolve worker 1 1 --sync-dir DIR/sync &
  envolve tune STUDY.yaml 0 2 --run-dir DIR &      the search, and NES master 0
  envolve tune STUDY.yaml 1 2 --run-dir DIR &      NES master 1

Any process may be killed and restarted, in any order; the results do not change. All processes end with the search.
On a SLURM cluster, use envolve submit.

Exit codes: 0 the search is complete, 1 it cannot start or continue, 2 wrong arguments or study, 130 Ctrl-C,
143 SIGTERM (resumable)."""

FAREWELL_SECONDS = 15.0  # that masters have to end by themselves, when all is done


@dataclass
class Args:
    study: tyro.conf.Positional[Path | None] = None
    """Study: a YAML file in configs/spaces/, or your own file."""
    bohb_id: tyro.conf.Positional[int | None] = None
    """Index of this process: 0 runs the search and NES master 0; b > 0 runs NES master b. Without it, everything runs
    on this machine, or on Ray with --workers-on."""
    bohb_workers: tyro.conf.Positional[int | None] = None
    """Number of NES masters, including master 0."""
    run_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of the run, shared by all processes. A search found there is continued. Default: a new folder; with
    BOHB_ID, results/bohb_<study>."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Continue the search in this folder with its stored study."""
    masters: int | None = None
    """Number of NES masters if BOHB_ID is not given. Default: 1 on this machine; on Ray one per concurrent trial."""
    num_workers: Annotated[int | None, tyro.conf.arg(name="workers")] = None
    """Workers that each NES master starts. Default: one per core, divided among the masters; on a running Ray cluster
    1; with BOHB_ID none, because you start the workers with GTN_worker.py."""
    workers_on: Annotated[str, tyro.conf.arg(metavar="PLACE", help=WORKERS_ON)] = FILES
    set: Annotated[list[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Values that override STUDY, e.g. search.seed=3 stop.trials=40 budget.most=27."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Parent folder of new runs."""
    storage: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Copy every finished trial to this SQLite file, for optuna-dashboard. Several studies may share a file."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Also log to this Weights & Biases project, with models and films (docs/tracking.md)."""
    check: tyro.conf.FlagCreatePairsOff[bool] = False
    """Validate the study, print what would be searched, and exit."""
    nes_master: tyro.conf.FlagCreatePairsOff[bool] = False
    """Run only NES master BOHB_ID (internal: the search starts its own masters with this flag)."""
    parent_pid: int = 0
    """Exit when the process with this id ends (internal: set by the search for its NES masters)."""


def complain(text: object) -> None:
    print(f"{commands.called('optimize_params.py')}: {text}", file=sys.stderr)


def read_args(args: Args) -> Study:
    """The study that is asked for. Raises ConfigError."""
    check_on_ray(args.workers_on, {"BOHB_ID": args.bohb_id is not None})
    for name, value, least in (
        ("BOHB_ID", args.bohb_id, 0), ("BOHB_WORKERS", args.bohb_workers, 1), ("--masters", args.masters, 1),
        ("--workers", args.num_workers, 0 if args.bohb_id is not None else 1),
    ):  # fmt: skip
        check_count(name, value, least)
    if args.bohb_workers is not None and args.bohb_id is not None and args.bohb_id >= args.bohb_workers:
        raise ConfigError([f"BOHB_ID: found {args.bohb_id}, expected less than BOHB_WORKERS, {args.bohb_workers}"])
    check_wandb(args.wandb)
    if args.storage is not None:
        storage_file(args.storage)
    for option, given in (("--storage", args.storage), ("--wandb", args.wandb)):
        if args.bohb_id and given is not None:
            raise ConfigError([f"{option}: found BOHB_ID {args.bohb_id}, expected 0: only the search knows its trials"])
    if args.resume is not None:
        if args.study is not None or args.run_dir is not None:
            raise ConfigError(["--resume: found STUDY or --run-dir too, expected neither: the folder has its study"])
        if not (args.resume / STUDY_FILE).is_file():
            raise ConfigError([f"--resume: found no {STUDY_FILE} in {args.resume}, expected the folder of a search"])
        args.study, args.run_dir = args.resume / STUDY_FILE, args.resume
    if args.study is None:
        raise ConfigError(["found no STUDY, expected a file such as configs/spaces/cartpole_syn_env.yaml"])
    study = read_study(args.study, args.set)
    if args.bohb_id is None:  # else masters and workers may be on other machines
        check_device(study.config.data.get("device", "cpu"))
    return study


def run_folder(args: Args, study: Study) -> Path:
    """Folder of this search; a new one gets its files, an old one must be of this study. Raises ConfigError, RunError,
    OSError."""
    if args.run_dir is not None:
        run_dir = args.run_dir
    elif args.bohb_id is not None:
        run_dir = args.results_dir / f"bohb_{study.name}"
    else:
        run_dir = new_folder(args.results_dir / f"{study.name}_{time.strftime('%Y-%m-%d-%H%M%S')}_seed{study.seed}")
    stored = run_dir / STUDY_FILE
    if stored.is_file():
        if read_study(stored).digest != study.digest:
            raise ConfigError(
                [f"{run_dir}: found another study there, or this one with other values; choose another --run-dir"]
            )
    elif not args.nes_master and not args.bohb_id:  # only the search writes
        run_dir.mkdir(parents=True, exist_ok=True)
        store_config(run_dir, study.config, {"command": shlex.join(sys.argv)})
        write_atomic(str(stored), dump_study(study).encode())
    return run_dir


def describe(study: Study) -> str:
    """--check."""
    b = study.budget
    brackets = "" if study.backend == "random" else f", {study.bracket} brackets"  # it evaluates at the full budget
    ends = [f"{study.trials} trials"] if study.trials is not None else []
    ends += [f"{study.full_evaluations:g} full evaluations"] if study.full_evaluations is not None else []
    lines = [
        f"{study.path}: valid",
        f"  configuration  {study.config.path}: {study.env_name}",
        f"  search         {study.backend}{brackets}, seed {study.seed}, {study.parallel} trials out",
        f"  budget         {b.least:g} to {b.most:g} {b.unit}, eta {b.eta:g}",
        f"  loss           {study.loss}, of {study.evaluate} trials",
        f"  ends after     {' or '.join(ends)}",
        f"  space          {len(study.space.config_space)} parameters",
    ]
    return "\n".join(lines + [f"    {line}" for line in str(study.space.config_space).splitlines()[1:]])


# ------------------------------------------------------------------------------------------------------- the two roles


def search(args: Args, study: Study, run_dir: Path) -> int:
    """The search, with NES masters of its own, on this machine or on Ray."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(run_dir))
        stack.enter_context(followed(args.wandb, run_dir))
        (run_dir / DONE).unlink(missing_ok=True)
        name = run_dir.resolve().name
        engine: Engine
        if args.workers_on == FILES:
            asked = Asked(args.bohb_id, args.bohb_workers, args.masters, args.num_workers)
            engine, children, started = masters_on_files(stack, study, run_dir, asked, __file__)
        else:
            from envolve.outer.ray.trials import trial_pool  # late: Ray is an extra

            pool = trial_pool(study, run_dir, args.workers_on, args.masters, args.num_workers)
            engine, children, started = stack.enter_context(pool), None, "Ray is starting NES masters"
        copies: list[Copy] = [] if args.storage is None else [OptunaStorage(args.storage, study, name)]
        optimiser = Optimiser(study, run_dir, engine, copies)
        copies.append(StudyBoard(run_dir, len(optimiser.known)))
        if children is not None:
            stack.enter_context(children)
            engine.on_wait = children.poll
        with StudyTable(study, remembered=optimiser.known) as table:
            table.note(f"{started}, {run_dir}")
            records = optimiser.execute(table)
        text = write_report(run_dir, study, records)
        write_atomic(str(run_dir / DONE), b"")
        engine.close(quit_workers=True)
        if children is not None:
            children.wait(FAREWELL_SECONDS)
    print(f"\n{text}")
    return 0


def master(args: Args, study: Study, run_dir: Path) -> int:
    """One NES master."""
    assert args.bohb_id is not None
    if (run_dir / DONE).exists() and not args.parent_pid:
        print(f"optimize_params.py: the search in {run_dir} is complete")
        return 0
    host = Host()
    started = host.start_time(args.parent_pid) if args.parent_pid else 0

    def check_parent() -> None:
        if args.parent_pid and (started < 0 or not host.alive(args.parent_pid, started)):
            os._exit(0)  # from the heartbeat's thread; the workers notice in their turn

    NESMaster(study, run_dir, args.bohb_id, args.num_workers or 0, check_parent).run()
    return 0


def main(argv: list[str] | None = None) -> int:
    args = parse("optimize_params.py", Args, argv, HELP)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    torch.set_num_threads(1)
    try:
        study = read_args(args)
        for warning in study.config.warnings if not args.nes_master else ():
            print(f"warning: {warning}", file=sys.stderr)
        if args.check:
            print(describe(study))
            return 0
        run_dir = run_folder(args, study)
    except ConfigError as e:
        complain(e)
        return 2
    except OSError as e:
        complain(in_words(e))
        return 1
    is_master = args.nes_master or bool(args.bohb_id)
    again = ["--resume", str(run_dir)]
    on = None if args.workers_on == FILES else args.workers_on
    workers = None if args.num_workers is None else str(args.num_workers)
    kept = (("--workers", workers), ("--storage", args.storage), ("--wandb", args.wandb), ("--workers-on", on))
    for option, given in kept:
        again += [option, given] if given is not None else []
    go_on = f"continue with: {shlex.join([*commands.typed('optimize_params.py'), *again])}"
    stopped = interrupt.GO_ON if is_master else go_on
    interrupt.advise(stopped)
    try:
        return (master if is_master else search)(args, study, run_dir)
    except KeyboardInterrupt:
        return interrupt.stopped("optimize_params.py", stopped)
    except (RunError, ExchangeError, SecondWorkerError, ConfigError, WorldFileError, ValueError, Broken, OSError) as e:
        complain(in_words(e))
    if not is_master:
        forget_unused(run_dir, study.config, STUDY_FILE)
        if run_dir.exists():
            complain(f"what is finished is kept; {go_on}")
    return 1


if __name__ == "__main__":
    interrupt.run(main)
