"""The policy that a world holds: in every observation the action that the world pays most for. Nothing is trained.

A bandit pays an action at once, so its reward network is a policy. But for the error of a search among continuous
actions, no agent can earn more reward in the world. Its return on the task says how good a policy the world teaches.
The twin with torch is ``envs/worlds/best_paid.py``. Axes: N observations, A inputs of an action, H hidden units.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from envolve.worlds.bandit import Net
from envolve.worlds.file import ZooWorld
from envolve.worlds.shelf import seen

DRAWN = 64  # actions of a Box that are compared
STARTS, CLIMBS = 4, 12  # the best of them, from which gradient ascent begins, and its steps
STEP, FALL = 0.3, 0.75  # length of its first step, in largest actions per dimension, and its factor per step
SEED = 0

Policy = Callable[[np.ndarray], Any]
"""Observation [*shape] or flat [F] -> action of the space; [N, *shape] or [N, F] -> actions [N, ...]."""


def policy(name: str | os.PathLike[str], normalised: bool = False) -> Policy:
    """The policy of the world ``name``, for observations of the world and of ``make_task``, both with or without
    ``normalised``. Raises WorldError."""
    return policy_of(seen(name, normalised))


def policy_of(world: ZooWorld) -> Policy:
    """See :func:`policy`."""
    net, A = world.bandit.reward_net, world.bandit.action_inputs
    best = best_index if world.action.n else best_numbers

    def act(observation: np.ndarray) -> Any:
        own = np.asarray(observation)
        single = own.shape in (world.observation.shape, world.mean.shape)
        context = (own.reshape(-1, len(world.mean)) - world.mean) / world.scale
        part = context.astype(np.float32) @ net.weights[0][A:] + net.biases[0]
        actions = world.action.actions(best(net, net.weights[0][:A], part))
        return actions[0] if single else actions

    return act


def best_index(net: Net, code: np.ndarray, part: np.ndarray) -> np.ndarray:
    """The best of A actions, int64 [N]. code: their rows of the first layer's weights, [A, H]; part: what the contexts
    add to its sums, [N, H]."""
    return net.rest(part[:, None] + code)[..., 0].argmax(-1)


def best_numbers(net: Net, code: np.ndarray, part: np.ndarray) -> np.ndarray:
    """The best action on the ways of gradient ascent from the best of some drawn ones, float32 [N, A], of numbers from
    -1 to 1. Steps a <- clip(a + c g / mean |g|), in which c falls. code [A, H], part [N, H]: as above."""
    N, A = len(part), len(code)
    drawn = np.random.default_rng(SEED).uniform(-1, 1, (DRAWN, A)).astype(np.float32)
    reward = net.rest(part[:, None] + drawn @ code)[..., 0]
    a = drawn[np.argsort(-reward, axis=1)[:, :STARTS]]
    best, highest = a[:, 0], np.full(N, -np.inf)
    for i in range(CLIMBS + 1):
        reward, gradient = with_gradient(net, part[:, None] + a @ code)
        k = reward.argmax(1)
        found, value = a[np.arange(N), k], reward[np.arange(N), k]
        best = np.where((value > highest)[:, None], found, best)
        highest = np.maximum(value, highest)
        g = gradient @ code.T
        length = STEP * FALL**i / np.maximum(np.abs(g).mean(-1, keepdims=True), 1e-12)
        a = np.clip(a + length * g, -1, 1).astype(np.float32)
    return best


def with_gradient(net: Net, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reward [..., ] for the sums z [..., H] of the first layer, and its gradient in them [..., H]."""
    sums = [z]
    for weights, bias in zip(net.weights[1:], net.biases[1:]):
        sums.append(net.activate(sums[-1].copy()) @ weights + bias)
    gradient = np.ones_like(sums[-1])
    for weights, before in zip(net.weights[:0:-1], sums[-2::-1]):
        gradient = (gradient @ weights.T) * net.slope_at(before)
    return sums[-1][..., 0], gradient
