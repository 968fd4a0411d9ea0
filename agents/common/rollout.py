"""Steps and episodes in worlds for all members at once, the basis of every learner's training and testing."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple, Union

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.reward_network import RewardNetwork
from envolve.envs.worlds.synthetic import synthetic_world
from envolve.envs.worlds.world import RealTask, World


def make_world(kind: str, task: Task, section: EnvSection, params: Tensor, gamma: Tensor) -> World:
    """kind: "real", "se" or "rn"; params: float32 [P, W] (any width for "real"); gamma: [P], the agents' discount."""
    if kind == "real":
        return RealTask(task, len(params))
    return synthetic_world(task, section, params) if kind == "se" else RewardNetwork(task, section, params, gamma)


def capturable(task: Task, kind: str) -> bool:
    """Returns whether a step in such a world can be captured in a CUDA graph."""
    return kind == "se" or not task.on_host


def reset_uniforms(key: Tensor, first: Tensor, count: int) -> Tensor:
    """Uniforms first .. first + count - 1 of each key. key: int64 [P], first: int64 [P, N] -> [P, N, count]."""
    return rng.uniform(key[:, None, None], first[:, :, None] + torch.arange(count, device=key.device))


def reward_noise(source: Union[Task, World], key: Tensor, counter: Tensor) -> Tensor:
    """Random part of the reward in the step with this counter: N(0, source.reward_noise).

    key: int64 [P], of stream REWARD; counter: int64 [P, N] -> float32 [P, N]. In training the counter is the number of
    environment steps before the step, in tests the number of the episode times max_steps plus the step.
    """
    return source.reward_noise * rng.normal(key[:, None], counter)


def repeat(
    world: World,
    state: Tensor,
    action: Tensor,
    t: Tensor,
    skip: int,
    max_steps: int,
    noise: Optional[Callable[[Tensor], Tensor]] = None,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Up to ``skip`` steps with one action (frame skip); an episode that is over stays as it is.

    state [P, N, S], action int64 [P, N] or float32 [P, N, A], t int64 [P, N] (steps of the episode so far); noise: t ->
    what is added to the reward of that step, for worlds with random rewards (``world.reward_noise``)
    -> state, summed reward, done, failed, t, over (done, failed or time limit), all [P, N].
    """
    state, reward, done, failed = world.step(state, action)
    if noise is not None:
        reward = reward + noise(t)
    t = t + 1
    over = (done > 0.5) | failed | (t >= max_steps)
    cut = world.truncated(state)
    over = over if cut is None else over | cut
    for _ in range(skip - 1):
        next_state, r, d, f = world.step(state, action)
        if noise is not None:
            r = r + noise(t)
        state = torch.where(over.unsqueeze(-1), state, next_state)
        reward = torch.where(over, reward, reward + r)
        done = torch.where(over, done, d)
        failed = failed | (f & ~over)
        t = t + (~over).long()
        over = over | (d > 0.5) | f | (t >= max_steps)
        cut = world.truncated(state)
        over = over if cut is None else over | cut
    return state, reward, done, failed, t, over


def advance(
    world: World,
    state: Tensor,
    action: Tensor,
    total: Tensor,
    t: Tensor,
    over: Tensor,
    skip: int,
    noise: Optional[Callable[[Tensor], Tensor]] = None,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """One decision of test episodes on a task: state, return, steps and end of those that are not ``over``, [P, N]
    each. The others stay as they are, and where steps are ``costly`` take none. noise: as of ``repeat``."""
    task = world.task
    if task.costly and noise is None:
        live = ~over
        s, a, now = (x[live].unsqueeze(0) for x in (state, action, t))
        moved, reward, _, _, later, ended = repeat(world, s, a, now, skip, task.test_steps)
        state, t, over, total = state.clone(), t.clone(), over.clone(), total.clone()
        state[live], t[live], over[live] = moved[0], later[0], ended[0]
        total[live] += reward[0]
        return state, total, t, over
    next_state, reward, _, _, next_t, next_over = repeat(world, state, action, t, skip, task.test_steps, noise)
    state = torch.where(over.unsqueeze(-1), state, next_state)
    return state, torch.where(over, total, total + reward), torch.where(over, t, next_t), over | next_over


def test_episodes(
    task: Task, policy: Callable[[Tensor, Tensor], Tensor], key: Tensor, first: Tensor, episodes: int, skip: int
) -> Tuple[Tensor, Tensor]:
    """Episodes on the real task -> returns float64 [P, episodes], steps int64 [P].

    policy: observation [P, N, F], number of the step int64 [P, N] -> action int64 [P, N] or float32 [P, N, A]. Step t
    of test episode j has the number (first + j) max_steps + t. The episode resets with the uniforms (first + j) * R + i
    of key. key, first: int64 [P].
    """
    if not episodes:
        return torch.zeros(len(key), 0, dtype=torch.float64, device=key.device), torch.zeros_like(key)
    most = task.episodes_at_once(len(key))
    if most is not None and most < episodes:
        returns, steps = [], torch.zeros_like(key)
        for done in range(0, episodes, most):
            some = test_episodes(task, policy, key, first + done, min(most, episodes - done), skip)
            returns.append(some[0])
            steps += some[1]
        return torch.cat(returns, 1), steps
    world, R = RealTask(task, len(key), for_learning=False), task.reset_uniforms
    number = first[:, None] + torch.arange(episodes, device=key.device)
    state = world.reset(reset_uniforms(key, number * R, R))
    total = torch.zeros(number.shape, dtype=torch.float64, device=key.device)
    t, over = torch.zeros_like(number), torch.zeros_like(number, dtype=torch.bool)
    first_step, noise_key = number * task.max_steps, rng.fold(key, rng.REWARD)
    noise = (lambda t: reward_noise(task, noise_key, first_step + t)) if task.reward_noise else None
    while not over.all():
        action = policy(world.observe(state), first_step + t)
        state, total, t, over = advance(world, state, action, total, t, over, skip, noise)
    task.release(state)
    return total, t.sum(1)


def final_test(run: Any, test: Callable[[Tensor, Tensor, Tensor], Tuple[Tensor, Tensor]]) -> Tensor:
    """Test returns of every member's final policy on the real task, float64 [P, T]; NaN where a member has no policy.

    run: the training loop, which has ended; its ``real_steps`` grow by the steps of the test. test: members int64 [L],
    and key and first of ``test_episodes`` -> what that returns.
    """
    rows = (run.status == 0).nonzero()[:, 0]
    shape = (len(run.status), run.s.test_episodes)
    returns = torch.full(shape, torch.nan, dtype=torch.float64, device=rows.device)
    if len(rows):
        key = rng.fold(run.keys[rows], rng.FINAL_TEST)
        returns[rows], steps = test(rows, key, torch.zeros_like(key))
        run.real_steps[rows] += steps
    return returns
