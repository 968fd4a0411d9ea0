"""Benchmarks made of cells: each is a line of ``cells.jsonl``, those that are there are not run again, a stopped search
goes on.

A benchmark says what its cells are and how one is run; here are the files, the loop over what is missing, a search in
this process, and the command line around them.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from envolve.core.files import read_text
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.load import CONFIG_FILE, Config, ConfigError, environment_info, load_config, store_config
from envolve.outer.evaluate.networks import evaluate
from envolve.outer.exchange.in_process import InProcess
from envolve.outer.reporting.report import LiveTable
from envolve.outer.run import Run

CELLS = "cells.jsonl"
ENDLESS = 10**6  # generations: the budget ends a search
Row = dict[str, Any]


def search(run_dir: Path, fresh: Callable[[], Config], enough: Callable[[Run], bool], command: str) -> Run:
    """A search in this process, or the rest of one that was stopped. fresh: its configuration where none is stored.
    Raises KeyboardInterrupt: its checkpoint stays."""
    run_dir.mkdir(parents=True, exist_ok=True)
    resume = (run_dir / CONFIG_FILE).exists()
    config = load_config(run_dir / CONFIG_FILE) if resume else fresh()
    if not resume:
        store_config(run_dir, config, {"command": command})
    with locked(run_dir), LiveTable(ENDLESS, run_dir.name, Console(quiet=True)) as table:
        run = Run(config, run_dir, InProcess(evaluate), resume=resume)
        run.search(table, enough)
    return run


def results(out: Path, kinds: Mapping[str, type]) -> list[Row]:
    """Finished cells, in the order of their names. kinds: keys that a table reads, and their types. Raises RunError."""
    rows = _rows(out)
    for name, row in rows.items():
        if any(type(row.get(key)) is not kind for key, kind in kinds.items()):
            raise RunError(f"{out / CELLS}: {name}: found another content than a cell of this program; remove the line")
    return [rows[name] for name in sorted(rows)]


def _rows(out: Path) -> dict[str, Row]:
    """Rows by the cell's name; of two lines of one cell the second counts. A last line that was cut off is none.
    Raises RunError."""
    path = out / CELLS
    rows = {}
    lines = read_text(path).split("\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            rows[str(row.pop("cell"))] = row
        except (ValueError, KeyError, AttributeError, TypeError):
            raise RunError(f"{path}: line {number}: found no cell of this program; remove the line") from None
    return rows


def demand(out: Path, wanted: Callable[[Row], Row]) -> None:
    """Raises RunError where a finished cell has other settings than it would have now, as its name may not say.
    wanted: the settings that count, for a row."""
    for name, row in _rows(out).items():
        for key, value in wanted(row).items():
            if row.get(key) != value:
                found = f"found {key} {row.get(key)}, expected {value}"
                raise RunError(f"{out / CELLS}: {name}: {found}; choose another --out, or remove the line")


def work(
    out: Path,
    cells: Iterable[tuple[Any, ...]],
    run: Callable[..., Row],
    shown: Callable[[Row], str],
    agents: Callable[..., int] | None = None,
) -> None:
    """Runs the cells that are missing. cells: their names, in order; run: takes the parts of a name, gives a row, to
    which ``cpu_seconds`` and this project's ``commit`` are added; shown: what is said of a row; agents: takes the
    parts, says how many ``returns`` a row must have. One with fewer is run again, with its returns as a last argument,
    and the new row replaces it. Several processes may share ``out`` if they have different cells."""
    out.mkdir(parents=True, exist_ok=True)
    commit = environment_info()["git"]
    for parts in cells:
        name = "-".join(map(str, parts))
        old = _rows(out).get(name)
        if old is not None and (agents is None or len(old["returns"]) >= agents(*parts)):
            continue
        began = time.process_time()
        row = run(*parts) if old is None else run(*parts, old["returns"])
        earlier = 0.0 if old is None else old.get("cpu_seconds", 0.0)  # not said of agents that a GPU trained
        row["cpu_seconds"] = round(earlier + time.process_time() - began, 1)
        row["commit"] = commit
        append(out / CELLS, {"cell": name, **row})
        print(f"{' '.join(map(str, parts))}: {shown(row)}, {row['cpu_seconds']:.0f} CPU-s", flush=True)


def append(path: Path, row: Row) -> None:
    """Adds a line. A line that a killed process left unfinished makes room."""
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write((json.dumps(row) + "\n").encode())


def add_flags(parser: argparse.ArgumentParser, name: str, seeds: int) -> None:
    """--out, --seeds and --table."""
    parser.add_argument("--out", type=Path, default=Path("results") / name, metavar="DIR", help="%(default)s")
    parser.add_argument("--seeds", type=int, default=seeds, help="of every cell (default: %(default)s)")
    parser.add_argument("--table", action="store_true", help="print the table of what is there and stop")


def check_counts(parser: argparse.ArgumentParser, flags: Mapping[str, Sequence[int | None]], most: int) -> None:
    """Ends the process if a value of a flag is not from 1 to ``most``."""
    for flag, values in flags.items():
        for value in values:
            if value is not None and not 1 <= value <= most:
                parser.error(f"{flag}: found {value}, expected 1 to {most}")


def finish(name: str, args: argparse.Namespace, go: Callable[[], None], table: Callable[[], str]) -> int:
    """Runs what is missing, unless only the table is asked for, and prints the table -> exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    torch.set_num_threads(1)
    try:
        if not args.table:
            go()
        print(table())
    except (RunError, ConfigError, OSError, ValueError) as e:
        print(f"{name}.py: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    return 0
