"""NES masters of a search on this machine, and the exchange by which they and others are asked for trials."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from envolve.core import commands
from envolve.outer.exchange.backlog import Patience
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.local_workers import LocalProcesses
from envolve.outer.hpo.nes_master import LOGS, TRIALS
from envolve.outer.hpo.study import STUDY_FILE, Study

log = logging.getLogger("envolve")
STOP_SECONDS = 3.2  # until an NES master that was told to end is killed: it ends its workers first


class Asked(NamedTuple):
    """What the command line says of NES masters; None: nothing."""

    bohb_id: int | None
    bohb_workers: int | None  # NES masters in all, with ids
    masters: int | None  # without ids
    num_workers: int | None  # of each


def masters_on_files(
    stack: contextlib.ExitStack, study: Study, run_dir: Path, asked: Asked, script: str
) -> tuple[Dispatcher, LocalProcesses, str]:
    """The exchange, entered on ``stack``, NES masters to start here (with ids number 0, else ``asked.masters`` of
    them), and words about them. script: what starts one."""
    masters = (asked.masters or 1) if asked.bohb_id is None else 1
    num_workers = asked.num_workers
    if num_workers is None:
        num_workers = max(1, len(os.sched_getaffinity(0)) // masters) if asked.bohb_id is None else 0
    at_once = asked.bohb_workers or masters
    if study.parallel < at_once:
        log.warning(
            "%d NES masters, but the study lets only %d trials run at once (search.parallel)", at_once, study.parallel
        )

    def command(bohb_id: int) -> list[str]:
        own = [str(run_dir / STUDY_FILE), str(bohb_id), "--run-dir", str(run_dir), "--workers", str(num_workers)]
        return [sys.executable, script, *own, "--nes-master", "--parent-pid", str(os.getpid())]

    def advice(free_id: int) -> str:
        more = [*commands.typed("optimize_params.py"), str(run_dir / STUDY_FILE), str(max(1, free_id))]
        more += [str(max(masters, free_id) + 1), "--run-dir", str(run_dir)]
        own = f"{masters} NES master{'s' * (masters != 1)} of this search are starting (logs: {run_dir / LOGS})"
        return f"{own}; more can be started anywhere: {shlex.join(more)}"

    never_late, name = Patience(factor=math.inf), run_dir.resolve().name  # a long trial is no straggler
    dispatcher = stack.enter_context(Dispatcher(str(run_dir / TRIALS), 0, name, patience=never_late, advice=advice))
    children = LocalProcesses(masters, command, run_dir / LOGS, what="NES master", stop_seconds=STOP_SECONDS)
    return dispatcher, children, f"{at_once} NES master{'s' * (at_once != 1)}"
