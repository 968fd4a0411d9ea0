"""Progress output of a run: TensorBoard events, by gradient step, and occasional log lines."""

from __future__ import annotations

import logging
import math
import time
from typing import Protocol

from envolve.distributed.memory.rows import Chunk, Counters
from envolve.distributed.programs.learner import Learner

log = logging.getLogger("envolve")


class Chart(Protocol):
    """Where values go: a ``Board`` of ``outer/reporting/board.py``, or one elsewhere."""

    def write(self, step: int, values: dict[str, float]) -> None: ...


def chart_name(role: str, worker: int = 0) -> str:
    """Folder of a program's events in that of the run."""
    return {"learner": "learner", "collector": f"train/{worker}", "evaluator": "eval/0"}[role]


class LearnerReport:
    def __init__(self, board: Chart) -> None:
        self.board = board
        self.clock = time.monotonic()
        self.before: tuple[int, int] | None = None

    def __call__(self, learner: Learner, p: Counters) -> None:
        now, counts = time.monotonic(), (p.steps, learner.updates)
        seconds = now - self.clock
        before = self.before
        per_second = [(n - b) / seconds for n, b in zip(counts, before)] if before else [math.nan] * 2
        self.clock, self.before = now, counts
        values = {
            "mean_return": p.mean_return,
            "staleness": p.staleness,
            "environment_steps": p.steps,
            "environment_steps_per_s": per_second[0],
            "gradient_steps_per_s": per_second[1],
        }
        self.board.write(learner.updates, {**values, **learner.metrics()})
        rates = "" if before is None else "  {:.0f} steps/s  {:.0f} updates/s".format(*per_second)
        log.info(
            "iteration %d/%d  steps %s  updates %s  return %.4g  staleness %.2g%s",
            learner.version,
            learner.params.num_iter,
            f"{p.steps:,}",
            f"{learner.updates:,}",
            p.mean_return,
            p.staleness,
            rates,
        )


class CollectorReport:
    def __init__(self, board: Chart, steps_per_iter: int) -> None:
        self.board, self.steps_per_iter = board, steps_per_iter

    def __call__(self, chunk: Chunk) -> None:
        if len(chunk.episodes):
            mean_return, length = chunk.episodes.mean(0).tolist()
            step = max(chunk.version, 0) * self.steps_per_iter
            self.board.write(step, {"episode_return": mean_return, "episode_length": length})


class EvaluatorReport:
    def __init__(self, board: Chart) -> None:
        self.board = board

    def __call__(self, step: int, values: dict[str, float]) -> None:
        self.board.write(step, values)
        told = "  ".join(f"{name.removeprefix('mean_')} {value:.5g}" for name, value in values.items())
        log.info("evaluation at %s updates: %s", f"{step:,}", told)
