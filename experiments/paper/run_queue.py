#!/usr/bin/env python3
"""Computes a list of the paper's experiments, one after the other. The work is in experiments/paper/common/queue.py."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from envolve.core import interrupt

if __name__ == "__main__":
    interrupt.listen("run_queue.py")  # before all that takes time to import

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro
from rich.table import Table

from envolve.core.places import CODE
from envolve.experiments.command_line import check_count, parse
from envolve.experiments.paper.common.command import EXIT_CODES, run_command
from envolve.experiments.paper.common.queue import (
    COMPLETE,
    FAILED,
    Experiment,
    ExperimentRecord,
    chosen,
    compute,
    read_queue,
    read_records,
    state,
    write_records,
)
from envolve.outer.reporting.display import wide_console

QUEUE = CODE / "configs" / "paper" / "queue.yaml"
HELP = """\
Run the paper's long experiments one after the other. After Ctrl-C, the same command continues.

  envolve paper queue --list                   list the experiments with their cost and state
  envolve paper queue                          run all that are not complete, on one core
  envolve paper queue --only cliff-figure      run this experiment and those that it needs
  nice envolve paper queue --cores 2 &         use two cores, with low priority

Each experiment is an envolve command that can be interrupted and continued. <results-dir>/paper/queue.json records its
command, commit, versions, CPU time, and a digest of its data files. envolve paper figures draws these data.
"""


@dataclass
class Args:
    queue: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FILE")]] = QUEUE
    """List of experiments. Default: configs/paper/queue.yaml."""
    show: tyro.conf.FlagCreatePairsOff[Annotated[bool, tyro.conf.arg(name="list")]] = False
    """Print the experiments with their state, and exit."""
    only: Annotated[list[str], tyro.conf.arg(metavar="NAME ...")] = field(default_factory=list)
    """Experiments to run, together with those that they need. Default: all."""
    cores: int = 1
    """CPU cores to use."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Folder with the worlds, the data and queue.json."""


def table(queue: Sequence[Experiment], records: Mapping[str, ExperimentRecord], folder: Path) -> Table:
    """A row per experiment."""
    out = Table(title=f"{folder / 'queue.json'}", title_justify="left")
    for title, side in (("experiment", "left"), ("state", "left"), ("CPU h", "right"), ("spent", "right")):
        out.add_column(title, justify=side)  # type: ignore[arg-type]
    out.add_column("what it is")
    for e in queue:
        record = records.get(e.name)
        spent = f"{record.cpu_seconds / 3600:.2f}" if record else "-"
        needs = f" (needs {', '.join(e.needs)})" if e.needs else ""
        out.add_row(e.name, state(e, record, folder), f"{e.cpu_hours:g}", spent, e.about + needs)
    return out


def work(args: Args) -> int:
    check_count("--cores", args.cores, 1)
    cores = min(args.cores, len(os.sched_getaffinity(0)))
    queue = chosen(read_queue(args.queue), args.only)
    folder = args.results_dir / "paper"
    records = read_records(folder)
    if args.show:
        wide_console().print(table(queue, records, folder))
        return 0
    for number, e in enumerate(queue, 1):
        found = state(e, records.get(e.name), folder)
        missing = [n for n in e.needs if n not in records or records[n].status != COMPLETE]
        head = f"{number}/{len(queue)} {e.name}"
        if found == COMPLETE:
            print(f"{head}: complete already", flush=True)
        elif missing:
            print(f"{head}: not begun, {missing[0]} is not complete", flush=True)
        else:
            print(f"{head}: about {e.cpu_hours:g} CPU hours; envolve {' '.join(e.command)}", flush=True)
            record = compute(e, args.results_dir, cores, records)
            if record.status not in (COMPLETE, FAILED):
                raise KeyboardInterrupt  # the experiment was told to stop
            print(f"{head}: {record.status}, {record.cpu_seconds / 3600:.2f} CPU hours", flush=True)
    write_records(folder, records)
    left = [e.name for e in queue if state(e, records.get(e.name), folder) != COMPLETE]
    if left:
        print(f"not complete: {', '.join(left)}", file=sys.stderr)
    return 1 if left else 0


def main(argv: list[str] | None = None) -> int:
    args = parse("run_queue.py", Args, argv, HELP + EXIT_CODES)
    return run_command("run_queue.py", work, args)


if __name__ == "__main__":
    interrupt.run(main)
