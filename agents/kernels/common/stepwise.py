"""Trainings of compiled learners in worlds whose steps Python takes: what those of all learners share. Members take
each decision together, and one batched call steps their worlds.

Axes: P members of a job, L of them still in training, E training episodes, T test episodes.
"""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.early_out import early_out
from envolve.agents.common.hyper import budgets
from envolve.agents.common.job import Job
from envolve.agents.common.result import OK, TrainResult
from envolve.agents.common.rollout import make_world
from envolve.agents.kernels.common.steps import Steps, steps_of
from envolve.core import rng

# Members int64 [K], stream, number of the first episode in it -> returns float64 [K, T], steps on the task int64 [K]
Tests = Callable[[np.ndarray, int, int], Tuple[np.ndarray, np.ndarray]]


class Stepwise:
    """Members still in training and what they have done. A subclass adds arrays [L, ...], names them in ``own``, and
    trains."""

    own: ClassVar[Tuple[str, ...]] = ()

    def __init__(self, job: Job, weights: np.ndarray, tests: Tests) -> None:
        """weights: float32 [P, D], trained in place."""
        self.job, self.task, self.tests = job, job.task, tests
        self.s: Any = job.hyper.section
        self.result = TrainResult.before_training(weights, self.s.train_episodes, self.s.test_episodes)
        self.logged = torch.from_numpy(self.result.episode_return)
        keys = torch.as_tensor(job.keys)
        self.member = np.arange(len(keys))  # the row of each in the result
        self.n = np.zeros(len(keys), np.int64)  # environment steps so far
        self.budget = budgets(job.hyper, keys.device).numpy()
        self.steps = self._steps()
        self.reward_scale = self.steps.world.reward_scale

    def _steps(self) -> Steps:
        job, rows = self.job, self.member
        keys, gamma = torch.as_tensor(job.keys[rows]), torch.as_tensor(job.hyper["gamma"][rows])
        world = make_world(job.kind, self.task, job.section, job.worlds[rows], gamma)
        streams = rng.fold(keys, rng.RESET), rng.fold(keys, rng.REWARD)
        return steps_of(world, self.s.same_action_num, self.task.max_steps, *streams)

    def drop(self, stays: np.ndarray) -> None:
        """Drops the members that have finished. stays: bool [L]."""
        for name in ("member", "n", "budget", *self.own):
            setattr(self, name, getattr(self, name)[stays])
        self.steps = self._steps()

    def log_episode(self, k: int, e: int, total: float) -> bool:
        """Logs the return of episode e of the member at place k -> whether training ends early with it."""
        r, s, i = self.result, self.s, int(self.member[k])
        if self.job.test_each:
            returns, steps = self.tests(np.array([i]), rng.TEST, e * s.test_episodes)
            total = returns[0].mean()
            r.real_steps[i] += int(steps[0])
        r.episode_return[i, e] = total
        settles = self.job.kind == "se" and not self.job.test_each
        here = torch.tensor([e]), torch.tensor([int(self.n[k])])
        stop = early_out(self.logged[i : i + 1], *here, s, settles, self.task.solved_reward)
        return bool(stop[0])

    def finish(self, k: int, episodes: int, updates: int, status: int, failed: Optional[Tensor] = None) -> None:
        """Notes what the member at place k has done. failed: the state in which its world did."""
        r, i, real = self.result, int(self.member[k]), self.job.kind != "se"
        r.episodes[i], r.train_steps[i], r.updates[i], r.status[i] = episodes, self.n[k], updates, status
        r.real_steps[i] += self.n[k] * real
        if real and failed is not None:
            r.complaints[i] = self.task.complaint(failed)

    def release(self, state: Tensor) -> None:
        """Gives back what the task keeps for these states, if they are the task's."""
        if self.job.kind != "se":
            self.task.release(state)

    def tested(self) -> TrainResult:
        """The result, once all have finished, with the final test of those that have a policy."""
        r = self.result
        fine = np.flatnonzero(r.status == OK)
        if len(fine):
            r.test_return[fine], steps = self.tests(fine, rng.FINAL_TEST, 0)
            r.real_steps[fine] += steps
        return r
