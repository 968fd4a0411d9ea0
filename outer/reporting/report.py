"""Progress display of a run: the live table and TensorBoard events."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass

from rich.console import Console, RenderableType
from typing_extensions import Self

from envolve.outer.reporting.board import Board
from envolve.outer.reporting.display import CompilingWatch, LiveDisplay, bar, columns


@dataclass
class GenerationRow:
    """Display values of one generation. Generations count from 1. NaN: not measured."""

    generation: int
    score_mean: float  # mean score of the unperturbed world
    score_best: float  # best score in the population
    real_return: float  # agents' mean return on the real task
    train_steps: float  # mean training steps of an agent
    episode_length: float  # mean length of a training episode
    failed: int  # members without a score
    member_steps: int  # environment steps of all members in this generation
    seconds: float  # wall time of this generation

    @property
    def steps_per_second(self) -> float:
        return self.member_steps / self.seconds if self.seconds > 0 else math.nan


def number(value: float) -> str:
    """Four significant digits where they help: 0.1234, 12.3, 195.0, 6,404; '-' for NaN."""
    if math.isnan(value):
        return "-"
    if abs(value) >= 1000 or math.isinf(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def precise(value: float) -> str:
    """Four significant digits, which a ranking needs: 0.1234, 195, 12,345; '-' for NaN."""
    return "-" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """0:07, 12:34 or 1:02:03."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"


class LiveTable(LiveDisplay):
    """A table that follows the run in a terminal; one plain line per generation where the output is none.

    ETA is the time until the last generation at the pace of the last few, "at most" that if the run may end before
    (``ends_early``). The first generation of a session and those in which kernels were compiled say nothing about the
    pace: until there is another one, there is no ETA. What is being compiled, for this process or one that it started,
    is shown.

        with LiveTable(total_generations=200, title="CartPole-v0") as table:
            table.update(GenerationRow(...))
            table.note("restart: world collapsed")
    """

    HISTORY = 8

    def __init__(
        self, total_generations: int, title: str, console: Console | None = None, ends_early: bool = False
    ) -> None:
        super().__init__(title, console)
        self.total, self.ends_early = total_generations, ends_early
        self.rows: deque[GenerationRow] = deque(maxlen=self.HISTORY)
        self.pace: deque[float] = deque(maxlen=self.HISTORY)  # seconds of generations that nothing delayed
        self.delayed = True  # the generation under way: the first one, or kernels were compiled in it
        self.waits = CompilingWatch()

    def __enter__(self) -> Self:
        super().__enter__()
        self.waits.start(None if self.live else self._line)
        return self

    def __exit__(self, *exc: object) -> None:
        self.waits.stop()
        super().__exit__(*exc)

    def update(self, row: GenerationRow) -> None:
        with self.lock:
            self.rows.append(row)
            if not (self.waits.seen() or self.delayed):
                self.pace.append(row.seconds)
            self.delayed = False
        self._show(
            f"generation {row.generation:>{len(str(self.total))}}/{self.total}"
            f"  score {number(row.score_mean)}  best {number(row.score_best)}"
            f"  real return {number(row.real_return)}"
            f"  train steps {number(row.train_steps)}  episode length {number(row.episode_length)}"
            + (f"  failed {row.failed}" if row.failed else "")
            + f"  {number(row.steps_per_second)} member-steps/s  {self._clock()}"
        )

    def _clock(self) -> str:
        clock = f"elapsed {duration(time.monotonic() - self.began)}"
        if self.waits.text:
            return f"{clock}  {self.waits.text}"
        left = max(0, self.total - self.rows[-1].generation) if self.rows else self.total
        if self.pace or not left:
            pace = statistics.median(self.pace) if self.pace else 0.0
            clock += f"  ETA {'at most ' if self.ends_early and left else ''}{duration(left * pace)}"
        return clock

    def _parts(self) -> list[RenderableType]:
        done = self.rows[-1].generation if self.rows else 0
        table = columns(
            ("gen", "score\nmean", "score\nbest", "real\nreturn", "train\nsteps", "episode\nlength", "failed",
             "member-\nsteps/s", "\nseconds"), left=0,
        )  # fmt: skip
        for i, r in enumerate(self.rows):
            figures = (r.score_mean, r.score_best, r.real_return, r.train_steps, r.episode_length)
            table.add_row(
                str(r.generation),
                *(number(f) for f in figures),
                str(r.failed) if r.failed else "",
                number(r.steps_per_second),
                number(r.seconds),
                style="bold" if i == len(self.rows) - 1 else "",
            )
        return [bar(done, self.total, f"generation {done}/{self.total}", self._clock()), table]


class TensorBoard:
    """The figures of every generation as TensorBoard scalars.

    purge_generation: on resume, TensorBoard forgets this generation and all after it.
    """

    def __init__(self, log_dir: str | os.PathLike[str], purge_generation: int | None = None) -> None:
        self._board = Board(log_dir, purge_generation)

    def write(self, row: GenerationRow) -> None:
        scalars = {**asdict(row), "member_steps_per_second": row.steps_per_second}
        self._board.write(scalars.pop("generation"), scalars)

    def close(self) -> None:
        self._board.close()
