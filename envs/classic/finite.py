"""Finite tasks, defined completely by tables."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.envs.task import Task


class FiniteTask(Task):
    """A task given by tables, shared with the compiled learners:

    ``next_state`` int32, ``reward`` float32, ``done`` bool, each [num_states, num_actions], and the int
    ``start_state``. A sub-class sets the class attributes and ``make_tables``; observations are one-hot.
    """

    start_state: int = 0

    def __init__(self, max_steps: Any = None, solved_reward: Any = None) -> None:
        super().__init__(max_steps, solved_reward)
        self.next_state, self.reward, self.done = self.make_tables()
        self._on: Dict[torch.device, Tuple[Tensor, ...]] = {}  # device -> the tables there, copied once

    def make_tables(self) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tables next_state, reward, done."""
        raise NotImplementedError

    def reset(self, u: Tensor) -> Tensor:
        """Start state. u: [P, N, 0] -> state int64 [P, N, 1]."""
        return torch.full(u.shape[:2] + (1,), self.start_state, dtype=torch.int64, device=u.device)

    def observe(self, state: Tensor) -> Tensor:
        """One-hot observation: state int64 [P, N, 1] -> float32 [P, N, num_states]."""
        return torch.nn.functional.one_hot(state[..., 0], self.observation_size).to(torch.float32)

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        if state.device not in self._on:
            arrays = (self.next_state.astype(np.int64), self.reward, self.done)
            self._on[state.device] = tuple(torch.from_numpy(array).to(state.device) for array in arrays)
        next_state, reward, done = self._on[state.device]
        index = (state[..., 0], action)
        return next_state[index].unsqueeze(-1), reward[index], done[index]
