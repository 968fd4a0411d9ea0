"""Value iteration (Bellman 1957) on a finite task, for the ideal potential."""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.envs.task import Task
from envolve.envs.worlds.world import RealTask, tables

SWEEPS = 1000  # more than any finite task here needs; the values stop changing long before


def optimal_values(task: Task, gamma: float) -> Tensor:
    """Optimal values V*, float32 [num_states]: V(s) = max_a r(s, a) + gamma V(s') (1 - done). Raises ValueError if the
    task is not finite."""
    next_state, reward, done = (t[0] for t in tables(RealTask(task, 1)))
    values = torch.zeros(len(reward), dtype=torch.float64)
    for _ in range(SWEEPS):
        new = (reward + gamma * values[next_state.long()] * (1 - done)).amax(1).double()
        if torch.equal(new, values):
            break
        values = new
    return values.float()
