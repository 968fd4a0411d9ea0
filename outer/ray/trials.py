"""Trials of a search on Ray: ``envolve tune --workers-on ray[:ADDRESS]``. The driver's side; that of the NES masters is
``outer/ray/nes_master.py``."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envolve.core.files import TORCH_BYTES, read_plain
from envolve.envs.worlds.file import write_atomic
from envolve.outer.exchange.backlog import Patience
from envolve.outer.exchange.evaluation import threads_of
from envolve.outer.exchange.machine import Rejected
from envolve.outer.exchange.messages import Chunk, ChunkResult
from envolve.outer.hpo.nes_master import RUNS
from envolve.outer.hpo.study import Study, dump_study
from envolve.outer.ray.evaluator import setup, versions
from envolve.outer.ray.folder import folder_bytes, write_folder
from envolve.outer.ray.nes_master import FILES, MARK, WORLDS, RayNESMaster, files_of
from envolve.outer.ray.pool import RayPool
from envolve.outer.ray.start import own_files, ray_cluster

NEVER_LATE = Patience(factor=math.inf)  # a long trial is no straggler


class TrialPool(RayPool):
    """Sends what a configuration was promoted from with its trial, and keeps what the trial leaves, below ``runs``."""

    def __init__(self, *args: Any, runs: Path, **options: Any) -> None:
        super().__init__(*args, **options)
        self._runs = runs
        self._sent: dict[int, Chunk] = {}

    def submit(self, chunk: Chunk) -> int:
        files = base64.b64encode(folder_bytes(self._runs / files_of(chunk.config))).decode("ascii")
        sent = dataclasses.replace(chunk, config={**chunk.config, FILES: files})
        ticket = super().submit(sent)
        self._sent[ticket] = sent
        return ticket

    def result(self, ticket: int) -> ChunkResult:
        """Raises ExchangeError, OSError."""
        result, sent = super().result(ticket), self._sent.pop(ticket)
        self._letters.forget(sent.config)
        left = result.values.pop(FILES, None)
        if left is not None:
            try:
                write_folder(left.numpy().tobytes(), self._runs / files_of(sent.config))
            except Rejected as e:
                return ChunkResult.failed(sent, "", f"its files cannot be kept: {e}")
        return result

    def withdraw(self) -> None:
        super().withdraw()
        self._sent.clear()


def sizes(study: Study, workers_on: str, masters: int | None, workers: int | None) -> tuple[int, int]:
    """NES masters, and workers of each, where one of them or both are not given: as many masters as there are trials
    at once; on a cluster of one's own they share the cores of this machine, elsewhere each has one worker."""
    cores = len(os.sched_getaffinity(0)) if workers_on == "ray" else 0
    each = 1 if study.evaluate == "goal" else workers  # trains in the master itself
    if masters is None:
        masters = min(study.parallel, max(1, cores // (each or 1))) if cores else study.parallel
    return masters, each or max(1, cores // masters)


@contextlib.contextmanager
def trial_pool(
    study: Study, run_dir: Path, workers_on: str, masters: int | None, workers: int | None
) -> Iterator[TrialPool]:
    """NES masters for the search in ``run_dir``, which has the study's files. Raises ExchangeError, OSError."""
    data, name, mark = study.config.data, run_dir.resolve().name, secrets.token_hex(16)
    masters, each = sizes(study, workers_on, masters, workers)
    worlds = {f"{WORLDS}/{i}.pt": read_plain(path, TORCH_BYTES) for i, path in enumerate(study.worlds)}
    there = dataclasses.replace(study, worlds=tuple(worlds))
    more = {"study": dump_study(there), "workers": each, "run_dir": str(run_dir.resolve()), "mark": mark}
    start = setup(name, {**own_files(data, run_dir), **worlds}, **more)
    cpus = each * (threads_of(data) if study.evaluate != "goal" else 1)
    write_atomic(str(run_dir / MARK), mark.encode())
    try:
        with ray_cluster(RayNESMaster, start, workers_on, masters, cpus, str(data.get("device", "cpu"))) as cluster:
            own = {"count": masters, "patience": NEVER_LATE}
            with TrialPool(cluster, name, versions(), runs=run_dir / RUNS, **own) as pool:
                yield pool
    finally:
        (run_dir / MARK).unlink(missing_ok=True)
