"""Greedy policy of a world: in every state the action with the highest next reward. Nothing is trained.

A contextual bandit rewards the right action at once, so its reward network *is* a policy. A reward network with the
right potential likewise shows after one step of the real dynamics which action was best. If this control scores as high
as trained agents, the world contains the answer itself instead of a way to learn it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.task import Task
from envolve.envs.worlds.world import World
from envolve.outer.distil.policy import Policy

GRID, DRAWN = 33, 64  # continuous actions compared: of one dimension on a grid, else drawn


def candidates(task: Task, key: int) -> Tensor:
    """Actions to compare: int64 [K], or float32 [K, A]."""
    if not task.action_size:
        return torch.arange(task.num_actions)
    if task.action_size == 1:
        return torch.linspace(-task.max_action, task.max_action, GRID)[:, None]
    u = rng.uniform(torch.tensor([[key]]), torch.arange(DRAWN * task.action_size)[None])
    return ((2 * u - 1) * task.max_action).float().view(DRAWN, task.action_size)


def rewards(world: World, state: Tensor, actions: Tensor) -> Tensor:
    """Rewards of the world for each of K actions in each of N states: state [1, N, S] -> float32 [N, K]."""
    N, K = state.shape[1], len(actions)
    each = state.repeat_interleave(K, 1)
    _, reward, _, failed = world.step(each, actions.repeat(N, *[1] * (actions.dim() - 1)).unsqueeze(0))
    return torch.where(failed, torch.full_like(reward, -torch.inf), reward).view(N, K)


def greedy(world: World, key: int = 0) -> Policy:
    """Policy argmax_a r(s, a), where r is the reward of ``world`` (P = 1). The state of SEs is the task's
    observation."""
    task, actions = world.task, candidates(world.task, key)

    def act(state: Tensor) -> Tensor:
        inner = state
        if world.kind == "se" and task.num_states is None:
            inner = task.observe(state)
        best = rewards(world, inner, actions).argmax(1)
        return actions[best].unsqueeze(0)

    return act
