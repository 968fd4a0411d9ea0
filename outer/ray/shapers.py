"""Slices of a ranking of shapers as chunks of Ray workers: ``envolve shape --workers-on ray[:ADDRESS]``.

The candidates' files travel with the start of a worker, so that no folder is shared. A worker executes them if the plan
names their SHA-256 (``outer/shapers/slices.py``); they are the user's own and run with all rights, here as there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.outer.exchange.machine import ExchangeError, Rejected
from envolve.outer.exchange.messages import Chunk, ChunkResult
from envolve.outer.ray.evaluator import setup, versions
from envolve.outer.ray.own_folder import FolderEvaluator
from envolve.outer.ray.pool import RayPool
from envolve.outer.ray.start import ray_cluster
from envolve.outer.shapers import slices
from envolve.outer.shapers.run import RankingPlan
from envolve.outer.shapers.slices import Slice

MODE, ANSWER = "slice", "slice"
Trained = Callable[[Slice], None]


class Unready(BaseException):
    """Raised where slices cannot be trained as everywhere else; no evaluation may count it as a failure of its own."""


class RayShapers(FolderEvaluator):
    """Trains agents of candidates whose files came with its start. The node is unfit if it cannot compile kernels."""

    unfit = Unready

    def _open(self) -> Callable[..., dict[str, Any]]:
        folder = self._folder()
        held = {name: data.numpy().tobytes() for name, data in self._start["files"].items()}
        return slice_evaluation(folder.resolve(), held)


def slice_evaluation(folder: Path, held: dict[str, bytes]) -> Callable[..., dict[str, Any]]:
    """folder: of this process; held: the files that came with its start."""

    def evaluate(plan: dict[str, Any], worlds: Tensor, seeds: Tensor, mode: str, threads: int) -> dict[str, Any]:
        slices.unpacked(plan, held, folder)
        if plan["backend"] == "compiled" and (why := slices.not_compiled()):
            raise Unready(f"the kernels of {slices.LEARNER} cannot be compiled: {why}")
        first, last = worlds[0].int().tolist()
        data = slices.train(plan, folder, range(first, last), threads)
        return {"score": torch.zeros(1), ANSWER: np.frombuffer(bytearray(data), dtype=np.uint8)[None]}

    return evaluate


def read_files(plan: RankingPlan) -> dict[str, bytes]:
    """Raises ExchangeError for a file that cannot be sent."""
    try:
        return slices.files_of(plan)
    except OSError as e:
        raise ExchangeError(f"{e.filename}: {e.strerror}; workers on Ray would need it") from e


@contextlib.contextmanager
def slice_pool(
    plan: RankingPlan, files: dict[str, bytes], workers_on: str, workers: int | None
) -> Iterator[tuple[RayPool, int]]:
    """Workers for the slices of a ranking -> them, and how many the cluster has room for. Raises ExchangeError."""
    name = plan.out.resolve().name
    start = setup(name, files)
    with ray_cluster(RayShapers, start, workers_on, workers, plan.threads, plan.device) as cluster:
        room = sum(node.slots for node in cluster.nodes())
        with RayPool(cluster, name, versions(), count=workers) as pool:
            yield pool, workers or room


def train_slices(pool: RayPool, plan: RankingPlan, files: dict[str, bytes], cut: list[range], trained: Trained) -> None:
    """Trains all slices; ``trained`` gets each once it is there. Raises ExchangeError."""
    content = slices.content_of(plan, files)
    left = {}
    for number, agents in enumerate(cut):
        worlds, seeds = torch.tensor([[float(agents.start), float(agents.stop)]]), torch.tensor([plan.seed])
        left[pool.submit(Chunk(pool.run_id, 1, number, 0, MODE, content, worlds, seeds))] = agents
    try:
        while left:
            ticket = pool.first(left)
            trained(_slice(pool.result(ticket), left.pop(ticket)))
    finally:
        for ticket in pool.answered(left):  # where something else has ended the wait
            trained(_slice(pool.result(ticket), left.pop(ticket)))
        pool.withdraw()


def _slice(result: ChunkResult, agents: range) -> Slice:
    if result.error or result.reasons[0]:
        return slices.given_up(agents, result.error or result.reasons[0])
    try:
        return slices.slice_of(result.values[ANSWER].numpy().tobytes(), agents)
    except (Rejected, KeyError, TypeError, ValueError, RuntimeError) as e:
        return slices.given_up(agents, f"its answer is damaged: {e}")


def threads_of(plan: RankingPlan, given: int) -> int:
    """CPU threads of a worker. given: by --threads, 0: one where the ranking is cut; else the simulator gets all cores
    of a machine like this one."""
    if given:
        return given
    return 1 if slices.independent(plan) else len(os.sched_getaffinity(0))
