#!/usr/bin/env python3
"""Evolves many worlds of one kind, each from a seed of its own. The loop is in outer/run.py; the folders are described
in experiments/paper/common/proxies.py."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("train_proxy.py")  # before all that takes time to import

import contextlib
import math
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
import tyro
from rich.console import Console

from envolve.core.files import TABLE_BYTES, read_text
from envolve.envs.worlds.file import write_atomic
from envolve.experiments.command_line import check_count, parse
from envolve.experiments.paper.common.command import EXIT_CODES, run_command
from envolve.experiments.paper.common.proxies import (
    MODEL,
    MODES,
    Proxy,
    ProxyRun,
    proxy,
    read_result,
    read_runs,
    write_index,
    write_result,
)
from envolve.experiments.paper.common.verdicts import evolution_words
from envolve.outer.checkpoint import UnscoredError, load_checkpoint, locked
from envolve.outer.config.load import Config, ConfigError, describe, dump_config, load_config
from envolve.outer.evaluate.members import evaluate_members, mean_of, score_rows
from envolve.outer.evaluate.networks import REAL_BUDGET
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.engine import Engine
from envolve.outer.exchange.local_workers import LocalWorkers
from envolve.outer.reporting.report import LiveTable, number
from envolve.outer.reporting.scores import ScoresCSV
from envolve.outer.reporting.wandb_run import check_wandb, followed
from envolve.outer.run import Run, config_digest
from envolve.outer.search.nes import MEMBERS, ORIG, member_seeds

HELP = """\
Evolve many worlds of one kind: by default 40 synthetic environments (SEs) or 50 reward networks (RNs). Run i equals
GTN_master.py CONFIG --seed <seed + i>. If you repeat the command, finished runs are skipped and interrupted runs
continue.

  envolve paper train-proxy default_config_cartpole_syn_env.yaml                  SEs
  envolve paper train-proxy default_config_gridworld_reward_env.yaml --mode 1     RNs of type 1

Modes: -1 no RN, but an agent with curiosity; 0 no RN; 1, 2 potential; 3, 4 potential with the info vector;
5, 6 non-potential; 7, 8 non-potential with the info vector; 101, 102 weighted info vector. RNs of even modes are added
to the task's reward; RNs of odd modes replace it. In modes -1 and 0 nothing is evolved: a run trains agents on the task
and stores their score.

Example with two NES masters that share a folder. Each has two workers and does every second run:

  envolve worker 0 0 &     envolve worker 0 1 &     envolve worker 1 0 &     ...
  envolve paper train-proxy CONFIG 0 2 &
  envolve paper train-proxy CONFIG 1 2 &
"""
SOLVED = {False: "solved (confirmed in the search)", True: "solved (what fresh agents do on the task)"}  # RNs?
FULL_RUNS_SE, FULL_RUNS_RN, QUICK_RUNS = 40, 50, 3


@dataclass
class Args:
    config: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="CONFIG")]]
    """Configuration: a default_config_*.yaml or your own file."""
    bohb_id: tyro.conf.Positional[int | None] = None
    """Index of this NES master if there are several. Without it, this process does all runs with its own workers."""
    bohb_workers: tyro.conf.Positional[int | None] = None
    """Number of NES masters; run i belongs to master i modulo this number."""
    mode: int | None = None
    """Mode of the RNs. Default: reward_env_type in CONFIG."""
    objective: str | None = None
    """Objective of the RNs: reward_threshold, auc or mean_return. Default: rn_objective in CONFIG."""
    vary_hp: bool | None = None
    """Draw hyperparameters for each agent. Default: as agent_name in CONFIG says."""
    runs: int | None = None
    """Number of worlds. Default: 40 SEs, 50 RNs; with --quick 3."""
    seed: int = 0
    """Random seed of run 0; run i uses this seed plus i."""
    set: Annotated[list[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Values that override CONFIG, e.g. agents.gtn.max_iterations=100 envs.Cliff.hidden_size=64."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """Quick look of about a minute: few generations of few agents."""
    num_workers: Annotated[int | None, tyro.conf.arg(name="workers")] = None
    """Number of local workers. Default: one per core; with BOHB_ID none, because you start the workers with
    GTN_worker.py."""
    sync_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder shared by master and workers. Default: the folder of the runs with local workers, else
    <results-dir>/GTN_sync."""
    quit_workers: tyro.conf.FlagCreatePairsOff[bool] = False
    """Tell the workers to exit when the runs are complete."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Parent folder of new runs."""
    name: str | None = None
    """Name of the folder of the runs. Suffixes such as _mode<M> are added. Default: the name of the configuration."""
    wandb: Annotated[str | None, tyro.conf.arg(metavar="PROJECT")] = None
    """Also log every run to this Weights & Biases project (docs/tracking.md)."""
    check: tyro.conf.FlagCreatePairsOff[bool] = False
    """Validate the configuration, print what would run, and exit."""


def read_args(args: Args) -> tuple[Proxy, list[int]]:
    """Kind of the worlds, and the random seeds of all runs. Raises ConfigError."""
    kind = proxy(
        args.config,
        args.results_dir,
        mode=args.mode,
        objective=args.objective,
        vary_hp=args.vary_hp,
        overrides=args.set,
        quick=args.quick,
        name=args.name,
    )
    if args.runs is None:
        args.runs = QUICK_RUNS if args.quick else FULL_RUNS_SE if kind.mode is None else FULL_RUNS_RN
    check_wandb(args.wandb)
    for option, value, least in (
        ("BOHB_ID", args.bohb_id, 0), ("BOHB_WORKERS", args.bohb_workers, 1), ("--runs", args.runs, 1),
        ("--seed", args.seed, 0), ("--workers", args.num_workers, 1),
    ):  # fmt: skip
        check_count(option, value, least)
    if args.bohb_id is not None and args.bohb_workers is None:
        raise ConfigError(["BOHB_WORKERS: found nothing, expected how many NES masters there are"])
    if args.bohb_id is not None and args.bohb_id >= (args.bohb_workers or 1):
        raise ConfigError([f"BOHB_ID: found {args.bohb_id}, expected less than BOHB_WORKERS, {args.bohb_workers}"])
    return kind, list(range(args.seed, args.seed + args.runs))


def share(seeds: list[int], bohb_id: int | None, bohb_workers: int | None) -> list[int]:
    """The runs of one master."""
    return seeds if bohb_id is None else seeds[bohb_id :: bohb_workers or 1]


def open_run(kind: Proxy, seed: int) -> tuple[Config, Path]:
    """The run's configuration and folder, with config.yaml in it. Raises ConfigError if another one's is there."""
    config, run_dir = kind.run_config(seed), kind.folder / f"seed{seed}"
    stored = run_dir / "config.yaml"
    if stored.exists():
        if load_config(stored).data != config.data:
            words = "found a run with other values, expected none or the same; choose another --name or --results-dir"
            raise ConfigError([f"{run_dir}: {words}"])
    else:
        run_dir.mkdir(parents=True, exist_ok=True)
        write_atomic(str(stored), dump_config(config, {"command": shlex.join(sys.argv)}).encode())
    return config, run_dir


def evolve(config: Config, run_dir: Path, dispatcher: Engine, title: str) -> ProxyRun:
    """One run of the outer loop, to its end. Raises RunError, ExchangeError, OSError."""
    run = Run(config, run_dir, dispatcher, resume=(run_dir / "scores.csv").exists())
    error, solved = "", False
    with LiveTable(run.gtn.max_iterations, title) as table:
        try:
            solved = run.execute(table).solved
        except UnscoredError as e:
            error = str(e)  # a result, too
    state, p = load_checkpoint(run.checkpoint, config_digest(config))
    return ProxyRun(
        seed=config.data["seed"],
        score=math.nan if error else p.best_score,
        solved=solved,
        mean_return=return_of(run_dir / "scores.csv", p.best_generation),
        generations=state.generation,
        best_generation=p.best_generation,
        steps=p.member_steps,
        seconds=p.seconds,
        model="" if error else MODEL,
        error=error,
        real_steps=run.real_steps,
    )


def return_of(path: Path, generation: int) -> float:
    """Mean test return of the agents that gave the world of ``generation`` its score."""
    lines = [line.split(",") for line in read_text(path, TABLE_BYTES).splitlines()]
    g, role, value = (lines[0].index(name) for name in ("generation", "role", "mean_return"))
    return mean_of(np.array([float(x[value]) for x in lines[1:] if x[g] == str(generation) and x[role] == ORIG]))


def train_on_task(kind: Proxy, config: Config, run_dir: Path, dispatcher: Dispatcher) -> ProxyRun:
    """Modes -1 and 0: as many agents as would score a world, on the task, curious or not."""
    began = time.monotonic()
    gtn, seed = config.data["agents"]["gtn"], config.data["seed"]
    count = gtn["num_orig_evals"] or gtn["num_workers"]
    seeds = torch.from_numpy(member_seeds(seed, MEMBERS, 0, count))
    values, reasons = evaluate_members(dispatcher, config, 1, torch.zeros(count, 1), seeds, REAL_BUDGET)
    with ScoresCSV(run_dir / "scores.csv") as csv:
        csv.write(1, score_rows([ORIG] * count, values, reasons))
    score, mean_return = mean_of(values["score"]), mean_of(values["mean_return"])
    failed = int((~np.isfinite(values["score"])).sum())
    error = next((r for r in reasons if r), "") if failed == count else ""
    solved = bool(mean_return >= config.data["envs"][config.data["env_name"]]["solved_reward"])
    steps, seconds = int(values["train_steps"].sum()), time.monotonic() - began
    print(f"{run_dir}: {MODES[kind.mode or 0]}, {count} agents: score {number(score)}, return {number(mean_return)}")
    return ProxyRun(seed, score, solved, mean_return, 0, 0, steps, seconds, "", error, real_steps=0)


@contextlib.contextmanager
def exchange(args: Args, kind: Proxy) -> Iterator[Dispatcher]:
    """The master's side, with workers of its own if it has them."""
    bohb_id = args.bohb_id or 0
    count = args.num_workers if args.bohb_id is not None else args.num_workers or len(os.sched_getaffinity(0))
    own = kind.folder / f"sync{bohb_id}"
    sync = str(args.sync_dir or (own if count else args.results_dir / "GTN_sync"))
    with contextlib.ExitStack() as stack:
        dispatcher = stack.enter_context(Dispatcher(sync, bohb_id, kind.folder.resolve().name))
        if count:
            workers = stack.enter_context(LocalWorkers(count, sync, bohb_id, kind.folder / "logs"))
            dispatcher.on_wait = workers.poll
        yield dispatcher
        if args.quit_workers:
            dispatcher.close(quit_workers=True)


def work(args: Args) -> int:
    kind, seeds = read_args(args)
    for warning in kind.config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if args.check:
        print(describe(kind.config))
        what = "SEs" if kind.mode is None else f"mode {kind.mode}, {MODES[kind.mode]}"
        print(f"{what}: seeds {seeds[0]} to {seeds[-1]}, in {kind.folder}")
        return 0
    mine = share(seeds, args.bohb_id, args.bohb_workers)
    kind.folder.mkdir(parents=True, exist_ok=True)
    for seed in mine:
        open_run(kind, seed)  # what does not fit is said before hours of training
    todo = [seed for seed in mine if read_result(kind.folder / f"seed{seed}") is None]
    if len(todo) < len(mine):
        print(f"{kind.folder}: {len(mine) - len(todo)} of {len(mine)} runs are finished already", file=sys.stderr)
    if todo:
        with exchange(args, kind) as dispatcher:
            for seed in todo:
                config, run_dir = open_run(kind, seed)
                with locked(run_dir), followed(args.wandb, run_dir):
                    if kind.evolves:
                        title = f"{config.data['env_name']}  {run_dir}"
                        result = evolve(config, run_dir, dispatcher, title)
                    else:
                        result = train_on_task(kind, config, run_dir, dispatcher)
                    write_result(run_dir, result)
                write_index(kind)
    write_index(kind)
    show(kind)
    return 0


def show(kind: Proxy) -> None:
    runs = read_runs(kind.folder)
    scores = [r.score for r in runs if math.isfinite(r.score)]
    text = f"{kind.folder}: {len(runs)} runs finished, {sum(r.solved for r in runs)} {SOLVED[kind.mode is not None]}"
    if scores:
        text += f", score {number(min(scores))} to {number(max(scores))}, median {number(float(np.median(scores)))}"
    if len(scores) < len(runs):
        text += f", {len(runs) - len(scores)} without a score"
    if kind.evolves and runs:
        spent = {str(r.seed): r.real_steps for r in runs}
        text += f"; real steps spent on evolving, tests included: {evolution_words(spent)}"
    Console(soft_wrap=True).print(text, markup=False, highlight=False)


def parse_words(argv: Sequence[str] | None = None) -> Args:
    return parse("train_proxy.py", Args, argv, HELP + EXIT_CODES)


def main(argv: list[str] | None = None) -> int:
    args = parse_words(argv)
    return run_command("train_proxy.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
