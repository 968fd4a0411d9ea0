"""A ranking of shapers whose agents are trained by workers of a Ray cluster, with the files of one simulator."""

from __future__ import annotations

import logging
import math
import time
from typing import List, Optional

import numpy as np
from rich.console import Console, RenderableType
from rich.text import Text

from envolve.envs.sim.simulator import SimulatorError
from envolve.outer.ray import shapers
from envolve.outer.reporting.board import Board
from envolve.outer.reporting.display import LiveDisplay, bar
from envolve.outer.reporting.report import duration, precise
from envolve.outer.shapers.run import RankingPlan, ShaperRun, curves_of
from envolve.outer.shapers.slices import Slice, cut, independent, together

log = logging.getLogger("envolve")


class LiveSlices(LiveDisplay):
    """How many agents are trained, and the best candidate of which an agent is."""

    def __init__(self, title: str, total: int, console: Console) -> None:
        super().__init__(title, console)
        self.total, self.done, self.best = total, 0, ""

    def update(self, done: int, best: str) -> None:
        with self.lock:
            self.done, self.best = done, best
        self._show(f"agents {done}/{self.total}  {best}  {self._clock()}")

    def _clock(self) -> str:
        elapsed = time.monotonic() - self.began
        left = elapsed * (self.total - self.done) / self.done if self.done else math.nan
        return f"elapsed {duration(elapsed)}" + ("" if math.isnan(left) else f"  ETA {duration(left)}")

    def _parts(self) -> List[RenderableType]:
        return [bar(self.done, self.total, f"{self.done} of {self.total} agents", self._clock()), Text(self.best)]


class ApartRun(ShaperRun):
    """``workers``: how many at most, None: as many as the cluster has room for."""

    def __init__(self, plan: RankingPlan, workers_on: str, workers: Optional[int]) -> None:
        super().__init__(plan._replace(threads=shapers.threads_of(plan, plan.settings["threads"])))
        self.workers_on, self.workers = workers_on, workers
        self.slices: List[Slice] = []

    def execute(self, console: Console) -> None:
        """Raises SimulatorError (no agent could be trained), ExchangeError, OSError, KeyboardInterrupt."""
        p = self.plan
        P = len(p.candidates) * p.K
        title = f"{p.task.name}: {len(p.candidates)} candidates x {p.K * p.N} environments, {p.learner}, on Ray"
        try:
            files = shapers.read_files(p)
            with shapers.slice_pool(p, files, self.workers_on, self.workers) as (pool, room):
                parts = cut(p, room)
                with LiveSlices(title, P, console) as table:
                    if not independent(p):
                        table.note("all agents share one simulator, because their bits depend on each other")

                    def trained(one: Slice) -> None:
                        self._take(one)
                        table.update(sum(len(s.agents) for s in self.slices), self._best())

                    shapers.train_slices(pool, p, files, parts, trained)
        finally:
            self.seconds = time.monotonic() - self.began
            self.rate = self.steps / self.seconds if self.steps else math.nan
        self.complete = True
        if all(s.result is None for s in self.slices):
            raise SimulatorError(self.slices[0].failures[0].reason)
        self._log_curves()

    def _take(self, one: Slice) -> None:
        p = self.plan
        self.slices.append(one)
        self.result, self.envs = together(len(p.candidates) * p.K, p.N, self.slices)
        self.curve = self.result.curve
        before = [0, *(q.steps for q in self.curve)]
        self.steps = sum((q.steps - b) * int(np.isfinite(q.score).sum()) for q, b in zip(self.curve, before))
        for i, failure in one.failures.items():
            log.warning("candidate %s is out: %s", p.candidates[one.agents[i] // p.K][0].name, failure)

    def _best(self) -> str:
        ranking = [o for o in self.ranking() if math.isfinite(o.score)]
        return f"best {ranking[0].name} {precise(ranking[0].score)} {self.plan.task.score_unit}" if ranking else ""

    def _log_curves(self) -> None:
        """TensorBoard's events, once all is there."""
        board, names = Board(self.plan.out), [c.name for c, _ in self.plan.candidates]
        try:
            for progress in self.curve:
                board.write(progress.steps, curves_of(names, progress))
        finally:
            board.close()
