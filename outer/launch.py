"""From a checked configuration to a finished run: its folder, the exchange, local workers, the table, the loop.

``GTN_master.py`` and ``envolve.evolve`` are two doors to it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from envolve.core import commands
from envolve.envs.outside.build import DESCRIPTION_FILE, is_outside
from envolve.outer.checkpoint import locked
from envolve.outer.config.load import CONFIG_FILE, Config
from envolve.outer.evaluate.compiled import compiled_beside
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.local_workers import LocalWorkers
from envolve.outer.reporting.folders import new_folder
from envolve.outer.reporting.report import LiveTable
from envolve.outer.reporting.summary import RunSummary
from envolve.outer.run import Run
from envolve.outer.search.ranking import Ranking
from envolve.outer.search.target import ranks

OWN_SYNC = "sync"  # the exchange of a run with local workers, in its folder


def new_run_dir(results: Path, config: Config) -> Path:
    """results/<name of the file>_<date>-<time>_seed<S>, made here; a number is added if it exists."""
    name = re.sub(r"^default_config_", "", Path(config.path).stem)
    return new_folder(results / f"{name}_{time.strftime('%Y-%m-%d-%H%M%S')}_seed{config.data['seed']}")


def forget_unused(run_dir: Path, config: Config) -> None:
    """Removes the folder of a run that could not even start, unless something else is in it."""
    own = {CONFIG_FILE, DESCRIPTION_FILE, *config.data.get("plugins", {})}
    with contextlib.suppress(OSError):
        if set(os.listdir(run_dir)) <= own:
            for name in own:
                (run_dir / name).unlink(missing_ok=True)
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


def conduct(
    config: Config, run_dir: Path, *, resume: bool, workers: int | None, sync_dir: str, bohb_id: int = 0,
    quit_workers: bool = False, console: Console | None = None,
) -> RunSummary | str:  # fmt: skip
    """Run to the end -> the summary; the text of a ranking. workers: processes that are started here and end with the
    run; None: others start them. Raises RunError, ExchangeError, OSError, KeyboardInterrupt."""
    local = workers is not None
    kernels = compiled_beside(config.data) if local else contextlib.nullcontext()
    with locked(run_dir), kernels, Dispatcher(sync_dir, bohb_id, run_dir.resolve().name) as dispatcher:
        kind = Ranking if ranks(config.data) else Run
        run = kind(config, run_dir, dispatcher, resume=resume)
        plugins = run_dir if config.data.get("plugins") or is_outside(config.data["env_name"]) else None
        own = LocalWorkers(workers or 0, sync_dir, bohb_id, run_dir, plugins=plugins) if local else None
        try:
            if own:
                own.start()
                dispatcher.on_wait = own.poll
            who = f"{workers} local worker{'s' * (workers != 1)}" if own else f"sync {sync_dir}"
            title = f"{config.data['env_name']}  {run_dir}  {who}"
            solvable = isinstance(run, Run) and run.target.kind != "rn" and run.gtn.quit_when_solved
            with LiveTable(run.gtn.max_iterations, title, console, solvable) as table, log_above(table):
                if own:
                    table.note("workers are starting; the first run on a machine compiles their kernels")
                elif not dispatcher.workers():
                    line = worker_line(bohb_id, sync_dir, plugins)
                    table.note(f"waiting for workers; start some, one per core: {line}")
                summary = run.execute(table)
            if quit_workers:
                dispatcher.close(quit_workers=True)
        finally:
            if own:
                own.close()
    return summary


def worker_line(bohb_id: int, sync_dir: str, plugins: Path | None) -> str:
    """What a user types to start a worker for this run."""
    worker = shlex.join(commands.typed("GTN_worker.py"))
    line = f"{worker} {bohb_id} 0 --sync-dir {shlex.quote(sync_dir)}"
    return line + (f" --plugins {shlex.quote(str(plugins))}" if plugins else "") + " &"
