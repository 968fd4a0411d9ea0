"""Episodes of a policy on the task itself: tests of controls, and the states that an expert visits. Python 3.8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.rollout import advance, reset_uniforms, reward_noise
from envolve.core import rng
from envolve.envs.task import Task
from envolve.envs.worlds.world import RealTask

Policy = Callable[[Tensor], Tensor]
"""state [P, N, S] -> action int64 [P, N], of continuous tasks float32 [P, N, A]."""


@dataclass
class Episodes:
    """Axes: P policies, N episodes of each."""

    returns: np.ndarray  # float64 [P, N]
    lengths: np.ndarray  # int64 [P, N], steps of each episode
    steps: np.ndarray  # int64 [P]: steps on the task
    observations: Tensor  # float32 [n, F], every state that was visited, if asked for; else empty


def play(task: Task, policy: Policy, keys: np.ndarray, episodes: int, keep: bool = False, skip: int = 1) -> Episodes:
    """Episodes of P policies side by side, each until it ends or the task's time limit.

    keys: int64 [P], the seeds of the resets; keep: return the visited observations; skip: steps with one action.
    """
    key = torch.as_tensor(keys)
    world, R = RealTask(task, len(key), for_learning=False), task.reset_uniforms
    number = torch.arange(episodes).expand(len(key), episodes)
    state = world.reset(reset_uniforms(key, number * R, R))
    total = torch.zeros(number.shape, dtype=torch.float64)
    t, over = torch.zeros_like(number), torch.zeros_like(number, dtype=torch.bool)
    noise_key, first = rng.fold(key, rng.REWARD), number * task.max_steps
    noise = (lambda t: reward_noise(task, noise_key, first + t)) if task.reward_noise else None
    visited: List[Tensor] = []
    while not over.all():
        if keep:
            visited.append(world.observe(state)[~over])
        state, total, t, over = advance(world, state, policy(state), total, t, over, skip, noise)
    task.release(state)  # episodes that the time limit has cut
    empty = torch.zeros(0, task.observation_size)
    return Episodes(total.numpy(), t.numpy(), t.sum(1).numpy(), torch.cat(visited) if visited else empty)


def of_observation(task: Task, act: Callable[[Tensor], Tensor]) -> Policy:
    """Policy that sees the observations of agents. act: observation float32 [P, N, F] -> action."""
    return lambda state: act(task.observe(state))
