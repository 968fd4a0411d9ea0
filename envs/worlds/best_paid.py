"""Best-paid action of a world: in every state the one with the highest next reward. Nothing is trained. Python 3.8.

A contextual bandit rewards the right action at once, so its reward network *is* a policy. A reward network with the
right potential likewise shows after one step of the real dynamics which action was best. If this control scores as high
as trained agents, the world contains the answer itself instead of a way to learn it.
"""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.task import Task
from envolve.envs.worlds.world import World

GRID, DRAWN = 33, 64  # continuous actions compared: of one dimension on a grid, else drawn
STARTS, CLIMBS = 4, 12  # drawn actions from which gradient ascent begins, and its steps
STEP, FALL = 0.3, 0.75  # length of its first step, in largest actions per dimension, and its factor per step


def candidates(task: Task, key: int) -> Tensor:
    """Actions to compare: int64 [K], or float32 [K, A]."""
    if not task.action_size:
        return torch.arange(task.num_actions)
    if task.action_size == 1:
        return torch.linspace(-task.max_action, task.max_action, GRID)[:, None]
    u = rng.uniform(torch.tensor([[key]]), torch.arange(DRAWN * task.action_size)[None])
    return ((2 * u - 1) * task.max_action).float().view(DRAWN, task.action_size)


def rewards(world: World, state: Tensor, actions: Tensor) -> Tensor:
    """Rewards of the world for each of K actions in each of N states: state [P, N, S] -> float32 [P, N, K]."""
    P, N, K = *state.shape[:2], len(actions)
    each = state.repeat_interleave(K, 1)
    same = actions.repeat(N, *[1] * (actions.dim() - 1)).expand(P, N * K, *actions.shape[1:])
    return paid(world, each, same).view(P, N, K)


def paid(world: World, state: Tensor, action: Tensor) -> Tensor:
    """The reward of each step, float32 [P, M]; -inf where it fails. state: [P, M, S]; action: [P, M] or [P, M, A]."""
    _, reward, _, failed = world.step(state, action)
    return torch.where(failed, torch.full_like(reward, -torch.inf), reward)


def best_actions(world: World, state: Tensor, key: int = 0) -> Tensor:
    """argmax_a r(s, a), where r is the reward of ``world``. state: [P, N, S] -> int64 [P, N] or float32 [P, N, A].

    The best of the candidates. In a world of networks, from which a gradient comes, the best ones of several dimensions
    climb: few draws of six numbers come near the best action.
    """
    actions = candidates(world.task, key)
    found = rewards(world, state, actions)
    if world.kind == "se" and world.task.action_size > 1:
        return climbed(world, state, actions[found.topk(STARTS, dim=2).indices])
    return actions[found.argmax(2)]


def climbed(world: World, state: Tensor, starts: Tensor) -> Tensor:
    """The best actions, float32 [P, N, A], on the ways that gradient ascent takes from ``starts`` [P, N, K, A]. Steps
    a <- clip(a + c g / mean |g|), in which c falls."""
    P, N, K, A = starts.shape
    top, each = world.task.max_action, state.repeat_interleave(K, 1)
    action, best = starts.reshape(P, N * K, A), starts[:, :, 0]
    highest = torch.full((P, N), -torch.inf)
    for i in range(CLIMBS + 1):
        action.requires_grad_(True)
        with torch.enable_grad():
            reward = paid(world, each, action)
            (gradient,) = torch.autograd.grad(reward.sum(), action)
        action = action.detach()
        value, which = reward.detach().view(P, N, K).max(2)
        found = action.view(P, N, K, A).gather(2, which[..., None, None].expand(P, N, 1, A))[:, :, 0]
        best = torch.where((value > highest)[..., None], found, best)
        highest = torch.maximum(value, highest)
        length = STEP * FALL**i * top / gradient.abs().mean(-1, keepdim=True).clamp(min=1e-12)
        action = (action + length * gradient).clamp(-top, top)
    return best


def greedy(world: World, key: int = 0) -> Callable[[Tensor], Tensor]:
    """The policy of the best actions: the task's state [P, N, S] -> action. The state of SEs is the task's
    observation."""
    task = world.task

    def act(state: Tensor) -> Tensor:
        inner = state
        if world.kind == "se" and task.num_states is None:
            inner = task.observe(state)
        return best_actions(world, inner, key)

    return act
