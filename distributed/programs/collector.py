"""Collector: the environments of P members in one worker, and the transitions of a turn.

A turn is a fixed number of steps in every environment with one policy; episodes go on from turn to turn. What is drawn
depends on the run's key, worker, version and step alone. In lockstep all episodes begin anew at every version at which
the learner keeps a checkpoint, so that a run that goes on from there collects what the other would have.

Axes: P members, T steps of a turn, F features, W columns of a transition.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.core import rng
from envolve.distributed.files.curriculum import apply, curriculum_from
from envolve.distributed.files.params import TrainParamsBase, flat, led_to
from envolve.distributed.memory.rows import RANDOM, Chunk, Handout, Widths, scaled
from envolve.distributed.programs.agent import make_agent

BLOCK = 256  # steps whose random numbers are drawn at once


def seed_of(key: Tensor, *numbers: int) -> int:
    """Random seed of 31 bits for an environment, different for different numbers. key: int64 []."""
    for number in numbers:
        key = rng.fold(key, number)
    return int(rng.high(key, torch.zeros_like(key))) >> 1


def steps_of(params: TrainParamsBase, workers: int, version: int) -> int:
    """Steps of a turn with this version's policy, in each environment."""
    episodes = params.n_buffer_init_episodes if version == RANDOM else params.n_train_episodes_per_iter
    return -(-params.horizon * episodes // workers)


@dataclass
class Seat:
    """Environment of one member."""

    env: Any
    obs: np.ndarray = field(default_factory=lambda: np.zeros(0))
    steps: int = 0  # in this episode
    total: float = 0.0  # its return
    begun: bool = False


class Collector:
    def __init__(self, params: TrainParamsBase, worker: int, workers: int, keys: Tensor, lockstep: bool) -> None:
        """keys: int64 [P], random keys of the members. Raises ParamsError, ConfigError."""
        self.params, self.worker, self.workers, self.lockstep = params, worker, workers, lockstep
        self.curriculum = curriculum_from(params.env_config)
        self.explore_key = rng.fold(rng.fold(keys, rng.EXPLORE), worker)
        self.reset_key = rng.fold(rng.fold(keys, rng.RESET), worker)
        self.seats = [Seat(params.collect_env(worker, seed_of(key, 0))) for key in self.reset_key]
        self.widths = Widths.of(self.seats[0].env)
        self.agent = make_agent(params, self.widths, keys)
        self.low, self.high = (np.array(bound, np.float32) for bound in (self.widths.low, self.widths.high))
        self.session = -1
        self.last_itr: int | None = None  # for the curriculum

    def steps_of(self, version: int) -> int:
        """Steps of one turn in each environment."""
        return steps_of(self.params, self.workers, version)

    def begin(self, handout: Handout) -> None:
        """Prepares a turn: ends episodes where needed, and sets the policy."""
        itr = max(handout.version, 0)
        anew = self.lockstep and itr % self.params.checkpoint_period == 0
        if handout.session != self.session:
            anew, self.last_itr = True, None
        values = self.curriculum.changes(self.last_itr, itr)
        for seat in self.seats:
            if values:
                apply(seat.env, values)
            if anew or values:
                seat.begun = False
        self.session, self.last_itr = handout.session, itr
        self.agent.actor().copy_(handout.policy)

    @torch.no_grad()
    def collect(self, handout: Handout) -> Chunk:
        """Collects one turn."""
        self.begin(handout)
        F, version = self.widths.observation_size, handout.version
        P, T = len(self.seats), self.steps_of(version)
        rows = np.zeros((P, T, self.widths.row), np.float32)
        rows[:, :, -1] = version
        ended: list[tuple[float, float]] = []
        explore_key = rng.fold(self.explore_key, version + 1)
        for t in range(T):
            if t % BLOCK == 0:
                draws = self.agent.draws(explore_key, t, min(BLOCK, T - t))
            for p, seat in enumerate(self.seats):
                if not seat.begun:
                    self._reset(seat, p, version, t)
                rows[p, t, :F] = seat.obs
            obs = torch.from_numpy(rows[:, t, None, :F])
            action = self.agent.explore(obs, version == RANDOM, tuple(d[t % BLOCK] for d in draws)).numpy()
            for p, seat in enumerate(self.seats):
                self._step(seat, action[p], rows[p, t])
                if not seat.begun:
                    ended.append((seat.total, seat.steps))
            rows[:, t, self.widths.action] = action
        found = torch.tensor(ended, dtype=torch.float32).view(-1, 2)
        return Chunk(handout.session, version, self.worker, secrets.randbits(62), torch.from_numpy(rows), found)

    def _reset(self, seat: Seat, p: int, version: int, t: int) -> None:
        linear = self.curriculum.at_reset(max(version, 0))
        if linear:
            apply(seat.env, linear)
        seat.obs = flat(seat.env.reset(seed=seed_of(self.reset_key[p], version + 2, t))[0])
        seat.steps, seat.total, seat.begun = 0, 0.0, True

    def _step(self, seat: Seat, action: np.ndarray, row: np.ndarray) -> None:
        """Makes a step in one environment and writes it to row [W]."""
        obs, reward, terminated, truncated, _ = seat.env.step(scaled(action, self.low, self.high))
        seat.steps += 1
        seat.total += float(reward)
        truncated = (truncated or seat.steps >= self.params.horizon) and not terminated
        row[self.widths.led_to], row[-4], row[-3], row[-2] = led_to(obs), reward, terminated, truncated
        seat.obs, seat.begun = flat(obs), not (terminated or truncated)

    def close(self) -> None:
        for seat in self.seats:
            seat.env.close()
