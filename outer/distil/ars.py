"""Augmented random search (Mania et al. 2018, https://arxiv.org/abs/1803.07055): a linear policy as an expert.

The policy is clip(W (s - mean) / unit) in units of the largest action. Units are the standard deviations of all states
visited so far, to the power ``unit_power``, times the number that makes the mean square of all features 1. With 1 every
feature has its own unit, with 0 all have the same one.

An iteration plays the policies W + noise D and W - noise D of every direction D once, and steps along the best
directions by the difference of their returns. All policies of an iteration are stepped together. On locomotion tasks
this costs a fraction of what gradient learners do, and a linear policy is easy to teach.

With a smaller power the policy depends more on features whose values are large, such as velocities beside angles.
Pupils, for which they are as large, learn that sooner.

With ``action_noise`` every action of the search's episodes has noise, the same for all policies of an iteration. Pupils
act as their expert does only nearly; an expert that was searched for with noise tolerates that. Tests have none.
Python 3.8.
"""

from __future__ import annotations

import itertools
from typing import Callable, Optional

import numpy as np
import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.task import Task
from envolve.outer.config.section import ARSSection
from envolve.outer.distil.linear import Linear
from envolve.outer.distil.policy import Episodes, of_observation, play

FINAL = 2**20  # number of the episodes of the last test


class ARS:
    """One expert. ``steps``: on the task so far."""

    def __init__(self, task: Task, section: ARSSection, key: int, begin: Optional[Linear] = None) -> None:
        """begin: a policy to begin with, in place of zeros; its mean and the units stay. Raises ValueError."""
        if not task.action_size:
            raise ValueError(f"ars: {task.name} has discrete actions, expected continuous ones")
        self.task, self.s, self.key = task, section, torch.tensor([key])
        F, A = task.observation_size, task.action_size
        self.weights = torch.zeros(A, F)
        self.count, self.mean, self.square = 0, torch.zeros(F, dtype=torch.float64), torch.zeros(F, dtype=torch.float64)
        self.steps = 0
        self.begin = begin
        if begin is not None:
            self.mean, self.count, self.steps = begin.mean.double(), 1, begin.steps
            self.square = self.mean.square() + begin.std.double().square()
            self.weights = begin.weights * (self.unit / self.std)  # the same policy in these units

    def train(self) -> None:
        iteration = 0
        before = self.steps
        while self.steps - before < self.s.train_steps:
            self._iterate(iteration)
            iteration += 1

    def _iterate(self, number: int) -> None:
        N, shape = self.s.directions, self.weights.shape
        counter = number * N * self.weights.numel() + torch.arange(N * self.weights.numel())
        direction = rng.normal(rng.fold(self.key, rng.ARS_DIRECTIONS)[:, None], counter)[0].view(N, *shape).float()
        moved = torch.cat((direction, -direction)) * self.s.noise_std + self.weights
        episodes = self._play(moved, number)
        fitness = torch.from_numpy((episodes.returns - self.s.alive_bonus * episodes.lengths)[:, 0])
        plus, minus = fitness.split(N)
        best = torch.maximum(plus, minus).topk(min(self.s.top, N)).indices
        spread = torch.cat((plus[best], minus[best])).std().clamp(min=1e-6)
        step = ((plus - minus)[best].float()[:, None, None] * direction[best]).mean(0) / spread.float()
        self.weights = self.weights + self.s.step_size * step
        if self.begin is None:
            self._seen(episodes.observations)
        self.steps += int(episodes.steps.sum())

    def _seen(self, observations: Tensor) -> None:
        x = observations.double()
        self.count += len(x)
        self.mean += (x - self.mean).sum(0) / self.count
        self.square += (x.square() - self.square).sum(0) / self.count

    @property
    def std(self) -> Tensor:
        """Standard deviation of the states seen, float32 [F]; 1 before the first."""
        if not self.count:
            return torch.ones(len(self.mean))
        return (self.square - self.mean.square()).clamp(min=1e-8).sqrt().float()

    @property
    def unit(self) -> Tensor:
        """Unit of each feature, float32 [F]: c std^unit_power, with the c for which (std / unit)^2 is 1 on average."""
        std = self.std
        unit = std**self.s.unit_power
        return unit * (std / unit).square().mean().sqrt()

    def _play(self, weights: Tensor, number: int) -> Episodes:
        """One episode of each of the policies [P, A, F], all from the starts of this iteration."""
        keys = rng.fold(self.key, rng.ARS_EPISODES).expand(len(weights)).numpy() + number
        mean, unit, top = self.mean.float(), self.unit, self.task.max_action
        noise, step = rng.fold(rng.fold(self.key, rng.ARS_NOISE), number)[:, None], itertools.count()
        A = self.task.action_size

        def act(observation: Tensor) -> Tensor:
            x = (observation - mean) / unit
            action = torch.baddbmm(x.new_zeros(()), x, weights.transpose(1, 2)).clamp(-1, 1)
            if self.s.action_noise:
                n = rng.normal(noise, next(step) * A + torch.arange(A))[0].float()
                action = (action + self.s.action_noise * n).clamp(-1, 1)
            return action * top

        return play(self.task, of_observation(self.task, act), keys, 1, keep=True)

    def policy(self) -> Callable[[Tensor], Tensor]:
        """observations float32 [n, F] -> actions float32 [n, A]."""
        mean, unit, weights, top = self.mean.float(), self.unit, self.weights.clone(), self.task.max_action
        return lambda x: ((x - mean) / unit @ weights.T).clamp(-1, 1) * top

    def score(self) -> float:
        """Mean return of ``test_episodes`` episodes that no iteration has used."""
        act = self.policy()
        keys = np.array([int(rng.fold(self.key, rng.ARS_EPISODES)) + FINAL])
        tested = play(self.task, of_observation(self.task, lambda x: act(x[0])[None]), keys, self.s.test_episodes)
        self.steps += int(tested.steps.sum())
        return float(tested.returns.mean())
