"""Data exchanged between programs: transitions in chunks, policies, and their layout as numbers.

A transition is one row of W = F + L + A + 4 float32: observation s, what it led to, action in [-1, 1], reward,
terminated, truncated, version of the policy. What it led to is, for rewards, the next observation s', L = F; for goals,
where s is (observation, desired goal), the goal that s' achieved, L = G. It is of its own episode where that ended
there, never the first of the next: no row crosses the boundary. What learns reads the columns up to ``terminated``; so
a time limit bootstraps. A version is exact as float32 up to 2^24.

Axes: P members, T time, F features, L numbers of what a row led to, G of a goal, A actions, W columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from torch import Tensor

RANDOM = -1  # version of the policy before the first: uniformly random actions, which fill the memory


@dataclass(frozen=True)
class Widths:
    """Sizes of an environment and of a stored row, and everything that an ``Algorithm`` reads of a task."""

    observation_size: int  # F, what a policy sees; of goals S + G
    action_size: int
    low: tuple[float, ...]  # bounds of each action
    high: tuple[float, ...]
    num_actions: int = 0  # discrete ones
    max_action: float = 1.0
    goal_size: int = 0  # G; 0: rewards in place of goals

    @classmethod
    def of(cls, env: Any) -> Widths:
        """env: a gymnasium.Env that passed ``envolve.distributed.files.params.check_env``."""
        action, seen = env.action_space, env.observation_space
        parts: Any = seen.spaces if isinstance(seen, spaces.Dict) else {}
        G = parts["desired_goal"].shape[0] if parts else 0
        F = parts["observation"].shape[0] + G if parts else seen.shape[0]
        return cls(F, action.shape[0], tuple(action.low.tolist()), tuple(action.high.tolist()), goal_size=G)

    @property
    def led_to(self) -> slice:
        """Columns of the action's outcome."""
        F = self.observation_size
        return slice(F, F + (self.goal_size or F))

    @property
    def action(self) -> slice:
        """Columns of the action."""
        return slice(self.led_to.stop, self.led_to.stop + self.action_size)

    @property
    def learned(self) -> int:
        """Columns that an algorithm's update reads."""
        return self.action.stop + 2

    @property
    def row(self) -> int:
        return self.learned + 2


def scaled(action: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Scales actions [..., A] from [-1, 1] to the bounds [A]."""
    return np.clip(low + 0.5 * (action + 1) * (high - low), low, high)


@dataclass(frozen=True)
class Handout:
    """Policy for one collector's turn."""

    session: int  # of the learner: one more each time it starts
    version: int  # iteration in which it collects, or RANDOM
    policy: Tensor  # float32 [P, D], the actors


@dataclass(frozen=True)
class Chunk:
    """Result of a collector's turn."""

    session: int  # those of its policy
    version: int
    worker: int
    ticket: int  # of this chunk alone, drawn by chance: one that comes twice is known by it
    rows: Tensor  # float32 [P, T, W]
    episodes: Tensor  # float32 [E, 2]: return and length of each that ended


@dataclass(frozen=True)
class Counters:
    """Counters of a run so far."""

    steps: int  # transitions of each member
    episodes: int  # that ended since the hub was started
    mean_return: float  # of the last ones, NaN: none
    staleness: float  # versions from a chunk's policy to the newest when it came; mean of the last ones, NaN: none
    pushes: int
    pulls: int
