"""From a checked configuration to a finished run: its folder, the exchange, local workers, the table, the loop.

``GTN_master.py`` and ``envolve.evolve`` are two doors to it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rich.console import Console

from envolve.envs.outside.build import DESCRIPTION_FILE
from envolve.outer.checkpoint import locked
from envolve.outer.config.load import Config
from envolve.outer.config.problem import executes_own_code
from envolve.outer.evaluate.compiled import compiled_beside
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.engine import Engine
from envolve.outer.exchange.local_workers import LocalWorkers, start_some
from envolve.outer.names import CONFIG_FILE
from envolve.outer.ray.address import FILES, RAY
from envolve.outer.reporting.folders import new_folder
from envolve.outer.reporting.report import LiveTable
from envolve.outer.reporting.summary import RunSummary
from envolve.outer.run import Run
from envolve.outer.search.ranking import Ranking
from envolve.outer.search.target import ranks


def new_run_dir(results: Path, config: Config) -> Path:
    """results/<name of the file>_<date>-<time>_seed<S>, made here; a number is added if it exists."""
    name = re.sub(r"^default_config_", "", Path(config.path).stem)
    return new_folder(results / f"{name}_{time.strftime('%Y-%m-%d-%H%M%S')}_seed{config.data['seed']}")


def forget_unused(run_dir: Path, config: Config, *more: str) -> None:
    """Removes the folder of a run that could not even start, unless something else is in it than its configuration and
    the files ``more``."""
    own = {CONFIG_FILE, DESCRIPTION_FILE, *config.data.get("plugins", {}), *more}
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
    config: Config,
    run_dir: Path,
    *,
    resume: bool,
    workers: int | None,
    sync_dir: str,
    bohb_id: int = 0,
    quit_workers: bool = False,
    console: Console | None = None,
    workers_on: str = FILES,
) -> RunSummary | str:
    """Run to the end -> the summary; the text of a ranking. workers: processes that are started here and end with the
    run; None: others start them, or Ray as many as it has room for. workers_on: ``files``, ``ray`` or ``ray:ADDRESS``.
    Raises RunError, ExchangeError, OSError, KeyboardInterrupt."""
    on_ray = workers_on != FILES
    local = workers is not None or workers_on == RAY
    kernels = compiled_beside(config.data) if local else contextlib.nullcontext()
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(run_dir))
        stack.enter_context(kernels)
        if on_ray:
            dispatcher, own = stack.enter_context(ray_engine(config, run_dir, workers_on, workers)), None
            who, note = f"{workers or 'all'} workers on Ray", "Ray is starting workers"
        else:
            dispatcher, own, who, note = _on_files(stack, config, run_dir, workers, sync_dir, bohb_id)
        kind = Ranking if ranks(config.data) else Run
        run = kind(config, run_dir, dispatcher, resume=resume)
        if own is not None:
            stack.enter_context(own)
        title = f"{config.data['env_name']}  {run_dir}  {who}"
        solvable = isinstance(run, Run) and run.target.kind != "rn" and run.gtn.quit_when_solved
        with LiveTable(run.gtn.max_iterations, title, console, solvable) as table, log_above(table):
            if note and (local or not dispatcher.workers()):
                table.note(note)
            summary = run.execute(table)
        if quit_workers:
            dispatcher.close(quit_workers=True)
    return summary


def ray_engine(
    config: Config, run_dir: Path, workers_on: str, workers: int | None
) -> contextlib.AbstractContextManager[Engine]:
    """Imports Ray here: it is optional, and takes a second."""
    from envolve.outer.ray.start import ray_pool

    return ray_pool(config.data, run_dir, workers_on, workers)


def _on_files(
    stack: contextlib.ExitStack, config: Config, run_dir: Path, workers: int | None, sync_dir: str, bohb_id: int
) -> tuple[Engine, LocalWorkers | None, str, str]:
    """The file exchange -> its master, workers to start here, and what is said of them in the title and in a note."""
    plugins = run_dir if executes_own_code(config.data) else None
    advice = partial(start_some, bohb_id, sync_dir, plugins)
    dispatcher = stack.enter_context(Dispatcher(sync_dir, bohb_id, run_dir.resolve().name, advice=advice))
    if workers is None:
        return dispatcher, None, f"sync {sync_dir}", f"waiting for workers; {advice(0)}"
    own = LocalWorkers(workers, sync_dir, bohb_id, run_dir, plugins=plugins)
    dispatcher.on_wait = own.poll
    who = f"{workers} local worker{'s' * (workers != 1)}"
    return dispatcher, own, who, "workers are starting; the first run on a machine compiles their kernels"
