"""Benchmarks made of cells: each is a file, those that are there are not run again, a stopped search goes on.

A benchmark says what its cells are and how one is run; here are the files, the loop over what is missing, a search in
this process, and the command line around them.
"""

from __future__ import annotations

import argparse
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
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError, locked
from envolve.outer.config.load import CONFIG_FILE, Config, ConfigError, load_config, store_config
from envolve.outer.evaluate.networks import evaluate
from envolve.outer.exchange.in_process import InProcess
from envolve.outer.reporting.report import LiveTable
from envolve.outer.run import Run

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
    """Finished cells, each checked for the keys that a table reads, with their types. Raises RunError."""
    rows = []
    for path in sorted(out.glob("cell-*.json")):
        try:
            row = json.loads(read_text(path))
        except ValueError:
            row = None
        if not isinstance(row, dict) or any(type(row.get(key)) is not kind for key, kind in kinds.items()):
            raise RunError(f"{path}: found another content than a cell of this program; remove the file")
        rows.append(row)
    return rows


def work(out: Path, cells: Iterable[tuple[Any, ...]], run: Callable[..., Row], shown: Callable[[Row], str]) -> None:
    """Runs the cells that are missing. cells: their names, in order; run: takes the parts of a name, gives a row, to
    which ``cpu_seconds`` is added; shown: what is said of a row."""
    out.mkdir(parents=True, exist_ok=True)
    for parts in cells:
        path = out / f"cell-{'-'.join(map(str, parts))}.json"
        if path.exists():
            continue
        began = time.process_time()
        row = run(*parts)
        row["cpu_seconds"] = time.process_time() - began
        write_atomic(str(path), (json.dumps(row, indent=1) + "\n").encode())
        print(f"{' '.join(map(str, parts))}: {shown(row)}, {row['cpu_seconds']:.0f} CPU-s", flush=True)


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
