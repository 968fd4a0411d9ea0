"""Display of an evolution: a table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from envolve.agents.shaped.training import Metrics
from envolve.envs.physics.task import PhysicsTask
from envolve.llm.reporting.lineage import name_of, score_text
from envolve.llm.reporting.report import verdicts_text
from envolve.llm.search.individual import HUMAN, Individual, best_of, ranking
from envolve.outer.reporting.display import LiveDisplay, bar, columns
from envolve.outer.reporting.report import duration, precise

if TYPE_CHECKING:
    from envolve.llm.settings import Settings


class LiveEvolution(LiveDisplay):
    """The watcher of an evolution.

    where: the folder of the run. ETA is the time until the last iteration, or until the end of a tuning that is under
    way; '-' before the first training has begun. Iterations that a resumed run only remembers are not counted in it.

        with LiveEvolution(task, settings, console, "results/...") as live:
            live.asking(0, proposals=10)
    """

    ROWS, RUNNING, LINES = 8, 6, 10  # LINES: per training, where the output is no terminal

    def __init__(self, task: type[PhysicsTask], s: Settings, console: Console, where: str) -> None:
        super().__init__(f"{task.name}, {where}", console)
        self.unit = task.score_unit
        self.iterations, self.trainings = s.iterations, s.training.iterations
        self.generations = s.tune.generations if s.tune is not None else 0
        self.individuals: list[Individual] = []
        self.doing = ""
        self.scores: list[tuple[str, float]] = []  # of the training under way, best first
        self.done = 0  # iterations, those remembered included
        self.seconds: list[float] = []  # of each iteration of this session
        self.began_iteration = self.began
        self.began_training: tuple[float, int] | None = None  # when the learner's first iteration was over, and which
        self.waited = 0.0  # s that it took: it may compile kernels, once, which is left out of what is expected
        self.last = self.began  # when something happened
        self.per = math.inf  # s per iteration of the learner
        self.share = 0.0  # of the training under way that is over
        self.left: float | None = None  # s, as of ``self.at``
        self.at = self.began

    # ------------------------------------------------------------------------------------------------- what happens

    def asking(self, iteration: int, proposals: int) -> None:
        with self.lock:
            self.began_iteration, self.began_training, self.scores = time.monotonic(), None, []
            self._expect(None)
        self._says(f"asking for {proposals} candidate{'s' * (proposals != 1)}", iteration)

    def vetting(self, iteration: int, count: int) -> None:
        self._says(f"vetting {count} replies", iteration)

    def training(self, iteration: int, names: Sequence[str], progress: Metrics, inside: Sequence[int]) -> None:
        """names: of all candidates; inside: those still in halving, to which the rows of progress belong in equal
        shares."""
        now = time.monotonic()
        score = np.asarray(progress.score, dtype=float)
        means = score.reshape(len(inside), -1).mean(1).tolist()  # over the agents of each
        finite = [(names[c], x) for c, x in zip(inside, means) if math.isfinite(x)]
        running = sorted(finite, key=lambda pair: -pair[1])
        with self.lock:
            self.scores, self.share = running, progress.iteration / self.trainings
            if self.began_training is None or progress.iteration <= self.began_training[1]:
                self.began_training, self.waited = (now, progress.iteration), now - self.last
            else:
                per = (now - self.began_training[0]) / (progress.iteration - self.began_training[1])
                rest = per * max(0, self.trainings - progress.iteration)
                whole = now - self.began_iteration - max(0.0, self.waited - per) + rest
                later = float(np.mean([*self.seconds, whole])) * (self.iterations - iteration - 1)
                self._expect(rest + later)
                self.per = per
        out = f"  out {len(means) - len(running)}" if len(running) < len(means) else ""
        # of the steps of training, where failed episodes begin anew: not the score, which counts whole episodes
        best = f"  best {running[0][0]} {precise(running[0][1])} per step" if running else ""
        step = progress.iteration
        plain = step == self.trainings or step % max(1, self.trainings // self.LINES) == 0
        self._says(f"training {step:>{len(str(self.trainings))}}/{self.trainings}{best}{out}", iteration, plain)

    def finished(self, iteration: int, individuals: Sequence[Individual]) -> None:
        now = time.monotonic()
        with self.lock:
            if self.began_training is not None or any(i.ok for i in individuals):
                fresh = self.began_iteration > self.began
                self.seconds += [now - self.began_iteration - max(0.0, self.waited - self.per)] * fresh
            self.individuals += individuals
            self.done, self.scores, self.share = iteration + 1, [], 0.0
            self._expect(float(np.mean(self.seconds)) * (self.iterations - self.done) if self.seconds else None)
            self.began_iteration = self.began  # the next one that is asked for sets it
        best = best_of(self.individuals)
        so_far = f"; best so far {name_of(best)} {score_text(best)} {self.unit}" if best is not None else ""
        self._says(verdicts_text(individuals) + so_far, iteration)

    def tuning(self, individual: Individual, generation: int, mean: float, best: float) -> None:
        now = time.monotonic()
        with self.lock:
            if generation <= 1 or self.began_training is None:
                self.began_training = now, generation
                self._expect(None)
            else:
                per = (now - self.began_training[0]) / (generation - self.began_training[1])
                self._expect(per * max(0, self.generations - generation))
        of = f"/{self.generations}" if self.generations else ""
        text = f"tuning {name_of(individual)}: generation {generation}{of}"
        self._says(f"{text}  mean {precise(mean)}  best {precise(best)} {self.unit}", None)

    # ------------------------------------------------------------------------------------------------ how it is shown

    def _says(self, text: str, iteration: int | None, plain: bool = True) -> None:
        with self.lock:
            where = "" if iteration is None else f"iteration {iteration + 1}/{self.iterations}  "
            self.doing, self.last = text, time.monotonic()
        self._show(f"{where}{text}  {self._clock()}" if plain else None)

    def _expect(self, left: float | None) -> None:
        self.left, self.at = left, time.monotonic()

    def _clock(self) -> str:
        now = time.monotonic()
        left = "-" if self.left is None else duration(max(0.0, self.left - (now - self.at)))
        return f"elapsed {duration(now - self.began)}  ETA {left}"

    def _parts(self) -> list[RenderableType]:
        now = f"iteration {min(self.done + 1, self.iterations)}/{self.iterations}"
        top = bar(self.done + self.share, self.iterations, now, Text(self.doing), self._clock())
        table = columns(("best so far", "how", f"score, {self.unit}"), left=2, padding=2)
        humans = [i for i in self.individuals if i.operator == HUMAN and i.ok]
        for i in sorted([*ranking(self.individuals)[: self.ROWS], *humans[-1:]], key=lambda i: -i.score):
            table.add_row(*map(Text, (name_of(i), i.operator * (i.operator != HUMAN), score_text(i))))
        running = columns(("in training", f"score, {self.unit}"), padding=2)
        for name, score in self.scores[: self.RUNNING]:
            running.add_row(Text(name), precise(score))
        side = Table.grid(padding=(0, 4))
        side.add_row(*[table] * bool(self.individuals), *[running] * bool(self.scores))
        return [top, side]
