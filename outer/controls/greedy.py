"""What a world pays, taken as a policy: in every state the action with the highest next reward. Nothing is trained.

A contextual bandit pays at once for what is right, so its reward network *is* a policy. A reward network with the right
potential, too, says after one step of the real dynamics which action was best. A control of this kind that scores as
high as trained agents tells what the world holds: the answer, not a place to find it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.task import Task
from envolve.envs.worlds.world import World
from envolve.outer.controls.policy import Policy

GRID, DRAWN = 33, 64  # continuous actions compared: of one dimension on a grid, else drawn


def candidates(task: Task, key: int) -> Tensor:
    """The actions that are compared: int64 [K], or float32 [K, A]."""
    if not task.action_size:
        return torch.arange(task.num_actions)
    if task.action_size == 1:
        return torch.linspace(-task.max_action, task.max_action, GRID)[:, None]
    u = rng.uniform(torch.tensor([[key]]), torch.arange(DRAWN * task.action_size)[None])
    return ((2 * u - 1) * task.max_action).float().view(DRAWN, task.action_size)


def rewards(world: World, state: Tensor, actions: Tensor) -> Tensor:
    """What the world pays for each of K actions in each of N states: state [1, N, S] -> float32 [N, K]."""
    N, K = state.shape[1], len(actions)
    each = state.repeat_interleave(K, 1)
    _, reward, _, failed = world.step(each, actions.repeat(N, *[1] * (actions.dim() - 1)).unsqueeze(0))
    return torch.where(failed, torch.full_like(reward, -torch.inf), reward).view(N, K)


def greedy(world: World, key: int = 0) -> Policy:
    """The policy argmax_a r(s, a), r being what ``world`` (P = 1) pays. Of SEs the state is the task's observation."""
    task, actions = world.task, candidates(world.task, key)

    def act(state: Tensor) -> Tensor:
        inner = state
        if world.kind == "se" and task.num_states is None:
            inner = task.observe(state)
        best = rewards(world, inner, actions).argmax(1)
        return actions[best].unsqueeze(0)

    return act
