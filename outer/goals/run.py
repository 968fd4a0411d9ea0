"""Goal-conditioned run in its folder: training, evaluations, files, and resuming."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Callable

import torch

from envolve.agents.goal.crl_train import GoalTraining
from envolve.core.files import UnfitFileError
from envolve.envs.goal.task import make_goal_task
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.goals.arguments import GoalPlan
from envolve.outer.goals.checkpoint import read_training, write_torch
from envolve.outer.goals.log import Score, from_csv, header, scores_of, to_csv
from envolve.outer.goals.report import GoalBoard, GoalTable, learning_curve, summary
from envolve.outer.names import CHECKPOINT, SCORES

POLICY, POLICIES = "policy.pt", "policies"
BETWEEN_CHECKPOINTS = 60.0  # s at least


class Interrupted(Exception):
    """Raised when the run was asked to stop; it can resume from its checkpoint."""


class GoalRun:
    """Raises ValueError if values do not fit together, RunError if a checkpoint cannot be used."""

    def __init__(self, plan: GoalPlan, folder: Path, resume: bool) -> None:
        run = plan.run
        self.plan, self.folder = plan, folder
        keys = torch.arange(run.population, device=run.device) + run.seed
        self.training = GoalTraining(
            make_goal_task(run.env_name),
            make_goal_task(run.eval_env or run.env_name),
            plan.learner,
            keys,
            plan.own,
            run.resample,
            run.episode_length,
            run.action_repeat,
            run.num_eval_envs,
            engine=run.engine,
            threads=run.threads,
        )
        self.log, self.seconds = "", 0.0  # lines of scores.csv without its header; wall time of all sessions
        if resume:
            self._load()

    @property
    def scores(self) -> list[Score]:
        return from_csv(self.log)

    def due(self, number: int) -> int:
        """Steps before evaluation ``number``: the first precedes training, the last follows it."""
        total, last = self.plan.run.num_timesteps, self.plan.run.num_evals - 1
        return -(-total * number // last) if last else total

    @property
    def storable(self) -> bool:
        """Whether a run that was stopped can go on."""
        return self.training.episodes.storable

    def execute(self, table: GoalTable, stop: Callable[[], bool] = lambda: False) -> str:
        """Trains to the end -> the summary. Raises Interrupted, after writing everything, once ``stop`` returns
        True."""
        t, run, storable = self.training, self.plan.run, self.storable
        done = self.scores  # their points stay: a run that stopped right after an evaluation does not repeat it
        board = GoalBoard(self.folder, done[-1].steps + 1 if done else None)
        if not storable:
            table.note(f"{run.engine} cannot be stored: this run cannot be resumed")
        began, saved, trained = time.monotonic() - self.seconds, time.monotonic(), 0.0
        steps = t.steps
        try:
            while True:
                if t.evaluations < run.num_evals and t.steps >= self.due(t.evaluations):
                    number = t.evaluations
                    scores = scores_of(number, t.evaluate())
                    speed = (t.steps - steps) * run.population / trained if trained > 0 else math.nan
                    self.log += to_csv(scores)
                    self._write(board, scores, speed)
                    table.evaluated(scores, trained, (t.steps - steps) * run.population)
                    steps, trained = t.steps, 0.0
                    if all(math.isnan(s.success) for s in scores):
                        raise RunError("every member has diverged: their weights are not finite; lower learning rates")
                    continue
                if t.evaluations >= run.num_evals:
                    break
                self.seconds = time.monotonic() - began
                if stop():
                    if storable:
                        self._save()
                    raise Interrupted
                if storable and time.monotonic() - saved > BETWEEN_CHECKPOINTS:
                    self._save()
                    saved = time.monotonic()
                table.progress(t.steps)
                before = time.monotonic()
                t.iteration()
                if t.keys.is_cuda:
                    torch.cuda.synchronize()
                trained += time.monotonic() - before
        finally:
            board.close()
        self.seconds = time.monotonic() - began
        text = summary(self.plan, self.folder, self.scores, self.seconds)
        write_atomic(str(self.folder / "summary.txt"), text.encode())  # says that the run is complete
        (self.folder / CHECKPOINT).unlink(missing_ok=True)  # which does not go on
        return text

    # --------------------------------------------------------------------------------------------------------- files

    def _write(self, board: GoalBoard, scores: list[Score], speed: float) -> None:
        """Writes the files of an evaluation."""
        metrics = self.training.learner.metrics
        write_atomic(str(self.folder / SCORES), (",".join(header(metrics)) + "\n" + self.log).encode())
        board.evaluated(scores, speed, metrics)
        names = []
        for i in range(self.plan.run.population if self.plan.own else 0):
            names.append(", ".join(f"{name} {values[i]:g}" for name, values in self.plan.own.items()))
        title = f"{self.plan.run.env_name}, {self.plan.agent_title}"
        learning_curve(self.folder / "learning_curve.png", self.scores, title, names)
        learner = self.training.learner
        policy = {"params": learner.params, "sizes": learner.sizes, "steps": self.training.steps}
        if learner.moments is not None:
            policy.update(mean=learner.moments.mean.float(), scale=learner.moments.scale)
        write_torch(self.folder / POLICY, policy)
        if self.plan.run.keep_policies:
            (self.folder / POLICIES).mkdir(exist_ok=True)
            write_torch(self.folder / POLICIES / f"{self.training.steps:012d}.pt", policy)

    def _save(self) -> None:
        state = {"training": self.training.state_dict(), "log": self.log, "seconds": self.seconds}
        write_torch(self.folder / CHECKPOINT, state)

    def _load(self) -> None:
        path = self.folder / CHECKPOINT
        if not path.exists():
            if (self.folder / "summary.txt").exists():
                raise RunError(f"{self.folder}: this run is complete")
            return  # it was ended before its first checkpoint: begin at the beginning, with the same result
        try:
            state = read_training(path, self.training)
            self.training.load_state_dict(state["training"])
            self.log, self.seconds = str(state["log"]), float(state["seconds"])
        except Exception as e:
            reason = str(e.strerror if isinstance(e, UnfitFileError) else e).strip().split("\n")[0]
            raise RunError(f"{path}: not a checkpoint of this run ({type(e).__name__}: {reason})") from None
