"""Files of a run over worlds or shapers: model.pt, scores.csv and checkpoint.pt, in this order, and its costs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from envolve.outer.checkpoint import UNKNOWN, Progress, load_checkpoint, save_checkpoint
from envolve.outer.evaluate.members import Values, mean_of, score_rows
from envolve.outer.loop.loop import Evaluated, Generation
from envolve.outer.names import CHECKPOINT
from envolve.outer.reporting.scores import ScoreRow, ScoresCSV
from envolve.outer.search.nes import ORIG
from envolve.outer.search.strategy import Strategy
from envolve.outer.search.target import WorldTarget


class RunKeeper:
    """Keeps the best world, every member's score, and the state of the search."""

    csv: ScoresCSV  # open while generations are made

    def __init__(self, run_dir: Path, digest: str, target: WorldTarget, resume: bool) -> None:
        """digest: of the configuration. Raises CheckpointError."""
        self.run_dir, self.digest, self.target = run_dir, digest, target
        self.checkpoint = run_dir / CHECKPOINT
        self.resuming, self.state = resume, None
        if resume and self.checkpoint.exists():
            self.state, self.progress = load_checkpoint(self.checkpoint, digest)

    def begin(self, strategy: Strategy) -> None:
        """strategy: whose state is kept from now on."""
        self.strategy = strategy
        if self.state is None:
            self.progress = Progress(best_psi=strategy.centre, real_steps=0)

    @property
    def resumed(self) -> bool:
        """True if there was a checkpoint."""
        return self.state is not None

    @property
    def real_steps(self) -> int | None:
        """Steps on the task that the evolution has cost so far; None: the run began in a version that did not count."""
        return None if self.progress.real_steps == UNKNOWN else self.progress.real_steps

    def count(self, values: Values) -> None:
        """Adds what members have cost."""
        p = self.progress
        p.member_steps += int(values["train_steps"].sum())
        p.member_episodes += int(values["episodes"].sum())
        if p.real_steps != UNKNOWN:
            p.real_steps += int(values["real_steps"].sum())

    def add_real_steps(self, steps: int | None) -> None:
        """Steps on the task before this run; None: unknown, so the run's own are as well."""
        self.progress.real_steps = UNKNOWN if steps is None else self.progress.real_steps + steps

    def remember(self, g: Generation, every: bool) -> None:
        """Keeps the world of this generation, as it was before the update, if it is the best; every: if it has a score
        at all. A solved SE beats all others.

        An RN's score is no return, so "solved" cannot choose the best: it only tells whether its agents solve the task.
        """
        p, score, solved = self.progress, mean_orig(g), g.solved
        if self.target.kind == "rn":
            real_return = mean_of(g.found.values["mean_return"][orig(g)])
            better, solved = score > p.best_score, real_return >= self.target.solved_reward
        else:
            better = (solved, score) > (p.solved, p.best_score)
        if better or (every and not math.isnan(score)):
            p.best_psi, p.best_score = self.strategy.centre.clone(), score
            p.best_generation, p.solved = g.number, solved
            self.save_model()

    def save_model(self) -> None:
        p = self.progress
        world = self.target.worlds(p.best_psi[None])[0]
        self.target.save(self.run_dir, world, p.best_score, p.solved, self.real_steps)

    def known(self, number: int) -> Evaluated | None:
        return None  # a checkpoint holds the state of the search, which needs no score again

    def evaluated(self, g: Generation) -> None:
        rows: list[ScoreRow] = []
        for members, found in ((g.members, g.found), *g.confirmed):
            rows += score_rows(members.roles, found.values, found.reasons, first=len(rows))
        self.csv.write(g.number, rows)

    def told(self, g: Generation) -> None:
        self.progress.finished = g.last
        self.progress.seconds += g.seconds
        self.save_state()

    def save_state(self) -> None:
        """Writes the checkpoint."""
        save_checkpoint(self.checkpoint, self.strategy.state, self.progress, self.digest)


def orig(g: Generation) -> np.ndarray:
    """bool [M], true for the agents in the unperturbed world."""
    return np.array([role == ORIG for role in g.members.roles])


def mean_orig(g: Generation) -> float:
    """Mean score of the unperturbed world, failed agents with the worst of the generation; NaN if all of them
    failed."""
    mask = orig(g)
    return math.nan if g.failed[mask].all() else float(g.scores[mask].mean())
