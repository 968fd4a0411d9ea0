"""The policy of a compiled PPO agent: how an action is drawn. Twin of ``agents/ppo/policy.py``, whose gradient is in
``update.py``."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.common.rng import gumbel, normal
from envolve.agents.kernels.dense.activation import F4, IDENTITY, NIL, NONE, PRELU, UNIT, ZERO, activate
from envolve.agents.kernels.dense.gemm import product
from envolve.agents.kernels.dense.mlp import aligned, size
from envolve.agents.kernels.off_policy.dispatch import implement
from envolve.agents.kernels.off_policy.training import U
from envolve.envs.nets.networks import ACTIVATIONS, MLPShape
from envolve.envs.task import Task

STD_MIN, HALF_LOG_2PI = F4(1e-3), F4(0.5 * math.log(2 * math.pi))


class Policy(NamedTuple):
    """What it takes to act."""

    hidden: int
    layers: int
    act: int
    std: int  # standard deviations in front of the nets: the size of a continuous action, 0 for discrete ones
    outputs: int  # A
    max_action: float
    test_noise: bool
    squash: bool  # a tanh bounds the mean of a continuous action
    p: np.ndarray  # float32 [D]: standard deviations, actor, critic
    noise: np.ndarray  # float32 [A]
    out: np.ndarray  # float32 [N A], the actor's outputs
    drawn: np.ndarray  # float32 [A], continuous action before it is clipped
    sent: np.ndarray  # float32 [A]
    h: np.ndarray  # float32 [N hidden]
    h2: np.ndarray

    @classmethod
    def create(
        cls, task: Task, actor: MLPShape, num_envs: int, test_noise: bool, squash: bool, p: np.ndarray
    ) -> Policy:
        A, H, layers, act = actor.outputs, actor.hidden, max(1, actor.layers), ACTIVATIONS.index(actor.activation)
        noise, out, drawn, sent = (aligned((n,)) for n in (A, num_envs * A, A, A))
        h, h2 = aligned((num_envs * H,)), aligned((num_envs * H,))
        top = float(task.max_action)
        return cls(H, layers, act, task.action_size, A, top, test_noise, squash, p, noise, out, drawn, sent, h, h2)


@njit(**JIT_UNCOUNTED)
def tanh(z):
    """Exact tanh, of few numbers: not worth the rational approximation."""
    return F4(math.tanh(z))


@njit(**JIT_UNCOUNTED)
def layer(p, o, K, M, x, out, rows, act, slope):
    """out[n, m] = act(b[m] + sum_k W[k, m] x[n, k]): a sample per row, because few samples would leave the lanes of a
    vector empty. x, out: flat."""
    product(x, NIL, K, UNIT, NONE, p[o:], M, out, NIL, M, K, rows, M)
    for n in range(rows):
        for m in range(M):
            out[n * M + m] += p[o + K * M + m]
    activate(out, rows * M, act, slope)


@njit(**JIT_UNCOUNTED)
def actor(policy, obs, rows):
    """policy.out[:rows A] <- the actor's outputs for obs[:rows F]."""
    p, o, H, A = policy.p, policy.std, policy.hidden, policy.outputs
    F = obs.shape[0] // rows
    slope = p[o + size(F, H, policy.layers, A, policy.act) - 1] if policy.act == PRELU else ZERO
    layer(p, o, F, H, obs, policy.h, rows, policy.act, slope)
    o += F * H + H
    h, h2 = policy.h, policy.h2
    for _ in range(1, policy.layers):
        layer(p, o, H, H, h, h2, rows, policy.act, slope)
        h, h2 = h2, h
        o += H * H + H
    layer(p, o, H, A, h, policy.out, rows, IDENTITY, slope)


@njit(**JIT_UNCOUNTED)
def draw_noise(policy, key, number):
    A = policy.outputs
    for a in range(A):
        counter = U(number) * U(A) + U(a)
        policy.noise[a] = gumbel(key, counter) if policy.std == 0 else normal(key, counter)


@njit(**JIT_UNCOUNTED)
def mean(policy, z):
    """Mean of a continuous action by the actor's output."""
    return F4(policy.max_action) * tanh(z) if policy.squash else z


@njit(**JIT_UNCOUNTED)
def choose(policy, n):
    """Row n of the actor's outputs, and noise -> index of a discrete action; else 0, and ``drawn`` holds the action,
    ``sent`` what is left of it within the task's limits."""
    A, index = policy.outputs, 0
    out = policy.out[n * A : (n + 1) * A]
    if policy.std == 0:
        for a in range(1, A):
            if out[a] + policy.noise[a] > out[index] + policy.noise[index]:
                index = a
    else:
        top = F4(policy.max_action)
        for a in range(A):
            policy.drawn[a] = mean(policy, out[a]) + max(policy.p[a], STD_MIN) * policy.noise[a]
            policy.sent[a] = min(max(policy.drawn[a], -top), top)
    return index


def test_action(policy, key, step, obs, action):
    """See off_policy.test_action."""
    if policy.test_noise:
        draw_noise(policy, key, step)
    else:
        policy.noise[:] = ZERO
    actor(policy, obs, np.int64(1))
    index = choose(policy, np.int64(0))
    for a in range(policy.std):
        action[a] = policy.sent[a]
    return index


implement(Policy, test_action=test_action)


@njit(**JIT_UNCOUNTED)
def log_prob(policy, n, index):
    """Log-probability of the action that ``choose`` returned."""
    A = policy.outputs
    out = policy.out[n * A : (n + 1) * A]
    if policy.std == 0:
        highest, total = out[0], ZERO
        for a in range(1, A):
            highest = max(highest, out[a])
        for a in range(A):
            total += math.exp(out[a] - highest)
        return out[index] - highest - math.log(total)
    total = ZERO
    for a in range(A):
        std = max(policy.p[a], STD_MIN)
        z = (policy.drawn[a] - mean(policy, out[a])) / std
        total -= F4(0.5) * z * z + math.log(std) + HALF_LOG_2PI
    return total
