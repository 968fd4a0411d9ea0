#!/usr/bin/env python3
"""Run masters and workers on a SLURM cluster, and keep them running until the masters are complete.

  envolve submit --masters 2 --run-dir results/my_study -- configs/spaces/cartpole_syn_env.yaml
  envolve submit --workers 64 --run-dir results/my_run -- default_config_cartpole_syn_env.yaml
  envolve submit --run-dir results/my_run             continue watching, also after this program was killed
  envolve submit --run-dir results/my_run --stop      cancel all jobs of this run; it can be continued

The command submits two job arrays (masters.sh, workers.sh), polls the queue, resubmits tasks that died, and stops the
workers when their master has ended. Jobs that reach their time limit save their state and requeue themselves. Run this
command in tmux or with nohup on the login node; it needs hardly any CPU time. If it ends, the jobs continue, but tasks
that die are not resubmitted until you start it again.

After --, give a study, a configuration with options of GTN_master.py, or any command. {BOHB_ID}, {MASTERS}, {RUN_DIR}
and {SYNC_DIR} are replaced in it. For example, two runs with different random seeds:

  envolve submit --masters 2 --run-dir results/two -- default_config_cartpole_syn_env.yaml --seed {BOHB_ID}

Logs: DIR/slurm/log/. For the settings of your cluster, use --setup FILE (module load ...) and --sbatch=OPTION.
Details: docs/slurm.md."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("submit.py")  # before all that takes time to import

import argparse
import contextlib
import shlex
import time
from collections.abc import Iterator, Sequence

from envolve.core import commands
from envolve.core.locks import lock
from envolve.slurm import batch
from envolve.slurm.arguments import build_parser, fleet_of
from envolve.slurm.arrays import act, say
from envolve.slurm.commands import (
    Exit,
    SetupError,
    exit_file,
    read_exit,
    split_words,
    write_text,
)
from envolve.slurm.fleet import Fleet
from envolve.slurm.words import check_words

STATE = "state.json"
NO_RUN = "no run was begun here; found no STUDY, CONFIG or command after --"
PYTHON = ["python3", str(Path(__file__).resolve())]  # wherever one stands


# ---------------------------------------------------------------------------------------------------- begin or go on


def open_fleet(args: argparse.Namespace, run_dir: Path) -> Fleet:
    """Fleet stored in this folder, or a new one. Raises SetupError, ValueError, OSError."""
    path = run_dir / "slurm" / STATE
    asked = fleet_of(args, run_dir) if args.words else None
    if not path.exists():
        if asked is None:
            raise SetupError(f"{run_dir}: {NO_RUN}")
        path.parent.joinpath("log").mkdir(parents=True, exist_ok=True)
        asked.save(path)
        return asked
    fleet = Fleet.load(path)
    if asked is not None:
        if not any(task.sent for task in fleet.tasks):  # nothing came of it
            asked.name, fleet = fleet.name, asked
        pairs = {
            "masters": (fleet.masters, asked.masters),
            "workers per master": (fleet.workers_per_master, asked.workers_per_master),
            "workers per task": (fleet.workers_per_task, asked.workers_per_task),
            "command": (shlex.join(fleet.settings["words"]), shlex.join(asked.settings["words"])),
        }
        for what, (old, new) in pairs.items():
            if old != new:
                raise SetupError(f"{run_dir}: begun with {what} {old}, found {new}; choose another --run-dir")
        fleet.settings, fleet.max_sends = asked.settings, asked.max_sends  # time limits and the like may change
    if args.retry:
        fleet.forgive()
        for task in fleet.tasks:
            file = exit_file(run_dir, task.role, task.index)
            file.with_suffix(".given_up").unlink(missing_ok=True)
            ended = read_exit(file)
            if ended is not None and ended.code != 0:
                file.unlink()
    fleet.save(path)
    return fleet


def check_first(args: argparse.Namespace, run_dir: Path) -> None:
    """Checks what a run needs before anything of it is in its folder or is sent. Raises SetupError, BatchError,
    ValueError, OSError."""
    path = run_dir / "slurm" / STATE
    if path.exists():
        if any(task.sent for task in Fleet.load(path).tasks):
            return
    elif not args.words:
        raise SetupError(f"{run_dir}: {NO_RUN}")
    batch.check_there()
    if args.words:
        check_words(args.words, args.masters, run_dir, args.python)


# ---------------------------------------------------------------------------------------------------- act


def exits(fleet: Fleet, run_dir: Path) -> dict[tuple[str, int], Exit]:
    found = {(t.role, t.index): read_exit(exit_file(run_dir, t.role, t.index)) for t in fleet.tasks}
    return {key: ended for key, ended in found.items() if ended is not None}


def step(fleet: Fleet, run_dir: Path, first: bool) -> int | None:
    """Checks the queue once and acts -> the exit code, once the run is over. first: nothing was submitted yet; if SLURM
    refuses a part, nothing is submitted. Raises BatchError."""
    path = run_dir / "slurm" / STATE
    known = exits(fleet, run_dir)
    actions = fleet.look(time.time(), batch.queue([*fleet.job_names()]), known)
    for task in actions.gone:
        ended = known.get((task.role, task.index))
        left = f"; exit code of its program: {ended.code} ({ended.reason})" if ended else ""
        why = batch.why(task.job) if task.job else "it was never seen in the queue"
        say(f"{task.label} (job {task.job or '?'}) is gone: {why or 'SLURM has forgotten why'}{left}")
    for note in actions.notes:
        say(note)
    for task in fleet.tasks:
        if task.given_up:  # for the tasks that wait for it, which do not read the state
            file = exit_file(run_dir, task.role, task.index).with_suffix(".given_up")
            if not file.exists():
                write_text(file, task.given_up + "\n")
    fleet.save(path)  # before anything is sent: a death in between costs one submit of the limit, never a double
    batch.cancel(actions.cancel)
    return act(fleet, run_dir, actions, path, first)


# ---------------------------------------------------------------------------------------------------- the command


@contextlib.contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Locks the run for one watcher. Raises SetupError."""
    (run_dir / "slurm").mkdir(parents=True, exist_ok=True)
    with open(run_dir / "slurm" / "lock", "w") as file:
        try:
            lock(file.fileno(), run_dir)
        except BlockingIOError:
            raise SetupError(f"{run_dir}: another submit.py watches this run") from None
        yield


def watch(fleet: Fleet, run_dir: Path, poll: float, once: bool) -> int:
    told, first = "", not any(task.sent for task in fleet.tasks)
    while True:
        try:
            code = step(fleet, run_dir, first)
            told = ""
        except batch.BatchError as e:
            if first:  # a wrong partition, say: trying again does not help
                raise SetupError(str(e)) from None
            if str(e) != told:
                say(f"{e}; trying again every {poll:g} s")
            told, code = str(e), None
        first = False
        if code is not None:
            say("all masters are complete" if code == 0 else "not all masters are complete; see above, and --retry")
            return code
        if once:
            return 130
        time.sleep(poll)


def main(argv: Sequence[str] | None = None) -> int:
    options, words = split_words(sys.argv[1:] if argv is None else argv)
    args = commands.parse_with("submit.py", build_parser(__doc__), options, argparse.Namespace(words=words))
    run_dir = args.run_dir.resolve()

    watch_on = f"the jobs go on; watch them again with: {shlex.join(again(run_dir))}"
    interrupt.advise(watch_on)
    try:
        check_first(args, run_dir)
        with alone(run_dir):
            fleet = open_fleet(args, run_dir)
            if args.stop:
                jobs = [e.job for e in batch.queue([*fleet.job_names()])]
                batch.cancel(jobs)
                fleet.forgive()
                fleet.save(run_dir / "slurm" / STATE)
                say(f"cancelled {len(jobs)} tasks; continue with: {shlex.join(again(run_dir))}")
                return 0
            return watch(fleet, run_dir, args.poll, args.once)
    except KeyboardInterrupt:
        return interrupt.stopped(commands.called("submit.py"), watch_on)
    except (SetupError, ValueError, OSError, batch.BatchError) as e:
        print(f"{commands.called('submit.py')}: {e}", file=sys.stderr)
        return 2


def again(run_dir: Path) -> list[str]:
    words = commands.typed("submit.py") if commands.called("submit.py") != "submit.py" else PYTHON
    return [*words, "--run-dir", str(run_dir)]


if __name__ == "__main__":
    interrupt.run(main)
