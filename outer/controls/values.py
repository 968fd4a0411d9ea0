"""Value iteration (Bellman 1957) on finite tasks and worlds: ideal potentials, and the optimum of a learned reward."""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor

from envolve.envs.task import Task
from envolve.envs.worlds.world import RealTask, World, tables

SWEEPS = 1000  # more than any finite task here needs; the values stop changing long before
Tables = Tuple[Tensor, Tensor, Tensor]  # next state, reward, done of a finite world, each [num_states, num_actions]


def table_of(world: World) -> Tables:
    """Tabulates a world of one member. Raises ValueError if the task is not finite."""
    next_state, reward, done = (t[0] for t in tables(world))
    return next_state.long(), reward, done


def action_values(of: Tables, gamma: float) -> Tensor:
    """Optimal Q*, float64 [num_states, num_actions]: Q(s, a) = r(s, a) + gamma max_b Q(s', b) (1 - done)."""
    next_state, reward, done = of
    values = torch.zeros(len(reward), dtype=torch.float64)
    for _ in range(SWEEPS):
        q = (reward + gamma * values[next_state] * (1 - done)).double()
        if torch.equal(q.amax(1), values):
            break
        values = q.amax(1)
    return q


def optimal_values(task: Task, gamma: float) -> Tensor:
    """Optimal values V*, float32 [num_states]. Raises ValueError if the task is not finite."""
    return action_values(table_of(RealTask(task, 1)), gamma).amax(1).float()


def return_on(task: Task, policy: Tensor, start: int) -> float:
    """Return of one episode of a deterministic policy on a finite, deterministic task, undiscounted, cut at its time
    limit. policy: an action per state, int64 [num_states]."""
    next_state, reward, done = table_of(RealTask(task, 1))
    state, total = start, 0.0
    for _ in range(task.max_steps):
        action = int(policy[state])
        total += float(reward[state, action])
        if done[state, action]:
            break
        state = int(next_state[state, action])
    return total
