"""numba twin of ``agents/shaped/ppo_torch.py``: an agent acts, remembers and learns in calls of its own without the
GIL, so its numbers do not depend on the population that it is in, nor on the number of threads.

The policy and the updates are ``agents/kernels/ppo/policy.py`` and ``update.py``; here are the normalisers around them,
and what is called at every decision. ``ppo_population.py`` makes the calls.

Floor per environment step for 48 observations, 12 actions and 2 x 128 tanh, 5 epochs: 47,000 weights, of which an
epoch makes 255,000 FLOP and the rollout and the values 139,000; with 3,600 tanh, that is some 7 us on a core that does
220 GFLOP/s.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.common.normaliser import CLIP, EPSILON
from envolve.agents.common.sections import PPOSection
from envolve.agents.kernels import JIT_INNER, JIT_UNCOUNTED
from envolve.agents.kernels.dense.activation import F4, NIL, ZERO
from envolve.agents.kernels.dense.mlp import aligned
from envolve.agents.kernels.off_policy.training import finite
from envolve.agents.kernels.ppo.policy import HALF_LOG_2PI, STD_MIN, actor, choose, draw_noise, log_prob, tanh
from envolve.agents.kernels.ppo.update import gather, learn, outputs
from envolve.agents.shaped.ppo_policy import STD_FLOOR


class Moments(NamedTuple):
    """See ``envolve.agents.common.normaliser.Moments``."""

    on: bool
    samples: np.ndarray  # float64 [2]: samples merged so far; those added since
    mean: np.ndarray  # float64 [K], as the next three
    squares: np.ndarray
    first: np.ndarray
    second: np.ndarray
    shift: np.ndarray  # float32 [K], mean and 1 / deviation
    scale: np.ndarray

    @classmethod
    def create(cls, on: bool, K: int) -> Moments:
        mean, squares, first, second = np.zeros((4, K))
        return cls(on, np.zeros(2), mean, squares, first, second, np.zeros(K, F4), np.ones(K, F4))


class Memory(NamedTuple):
    """What an agent needs besides ``ppo.PPO``."""

    x: np.ndarray  # float32 [N F], normalised observations
    seen: Moments
    paid: Moments
    discounted: np.ndarray  # float64 [N], returns, of ``paid``

    @classmethod
    def create(cls, section: PPOSection, F: int) -> Memory:
        N = section.num_envs
        seen, paid = Moments.create(section.normalise_obs, F), Moments.create(section.normalise_reward, 1)
        return cls(aligned((N * F,)), seen, paid, np.zeros(N))


@njit(**JIT_INNER)
def add(moments, k, value):
    d = value - moments.mean[k]
    moments.first[k] += d
    moments.second[k] += d * d


@njit(**JIT_INNER)
def merge(moments):
    count = moments.samples
    count[0] += count[1]
    count[1] = 0.0
    for k in range(moments.mean.shape[0]):
        change = moments.first[k] / count[0]
        moments.mean[k] += change
        moments.squares[k] += max(moments.second[k] - moments.first[k] * change, 0.0)
        moments.first[k] = moments.second[k] = 0.0
        moments.shift[k] = F4(moments.mean[k])
        moments.scale[k] = F4(1.0 / math.sqrt(moments.squares[k] / count[0] + EPSILON))


@njit(**JIT_INNER)
def normalised(value, moments, k):
    if not moments.on:
        return value
    return min(max((value - moments.shift[k]) * moments.scale[k], F4(-CLIP)), F4(CLIP))


@njit(**JIT_UNCOUNTED)
def act(policy, rollout, memory, obs, action, i, key, decision, t):
    """Decision t of the rollout, number ``decision`` of the training: obs[i] -> action[i], in all N environments."""
    x, seen, N, F = memory.x, memory.seen, obs.shape[1], rollout.obs.shape[0]
    for n in range(N):
        for f in range(F):
            x[n * F + f] = normalised(obs[i, n, f], seen, f)
    if seen.on:
        for n in range(N):
            for f in range(F):
                add(seen, f, obs[i, n, f])
        seen.samples[1] += N
    for f in range(F):
        for n in range(N):
            rollout.obs[f, t * N + n] = x[n * F + f]
    actor(policy, x, N)
    for n in range(N):
        draw_noise(policy, key, decision * N + n)
        choose(policy, n)
        rollout.logp[t * N + n] = log_prob(policy, n, NIL)
        for a in range(policy.outputs):
            rollout.action[a, t * N + n] = policy.drawn[a]
            action[i, n, a] = policy.sent[a]


@njit(**JIT_UNCOUNTED)
def mean_action(policy, memory, obs, action, i):
    """obs[i] -> action[i], in any number of environments."""
    x, seen, A = memory.x, memory.seen, policy.outputs
    F, most = seen.mean.shape[0], policy.out.shape[0] // A
    for first in range(0, obs.shape[1], most):
        rows = min(most, obs.shape[1] - first)
        for n in range(rows):
            for f in range(F):
                x[n * F + f] = normalised(obs[i, first + n, f], seen, f)
        actor(policy, x[: rows * F], rows)
        for n in range(rows):
            for a in range(A):
                action[i, first + n, a] = F4(policy.max_action) * tanh(policy.out[n * A + a])


@njit(**JIT_UNCOUNTED)
def record(rollout, memory, c, reward, terminated, truncated, last_obs, i, t, ends):
    """What decision t led to -> states in ``rollout.last``, of which there were ``ends``."""
    N, F = c.num_envs, rollout.obs.shape[0]
    paid, discounted = memory.paid, memory.discounted
    for n in range(N):
        j = t * N + n
        over = terminated[i, n] or truncated[i, n]
        rollout.reward[j] = reward[i, n]
        rollout.over[j] = over
        rollout.terminated[j] = terminated[i, n] or (over and not c.bootstrap_time_limit)
        if paid.on:
            discounted[n] = discounted[n] * c.gamma + reward[i, n]
            add(paid, NIL, discounted[n])
            if over:
                discounted[n] = 0.0
        if not rollout.terminated[j] and (over or t == c.rollout_steps - 1):
            for f in range(F):
                rollout.last[f, ends] = normalised(last_obs[i, n, f], memory.seen, f)
            rollout.at[ends] = j
            ends += 1
    if paid.on:
        paid.samples[1] += N
    return ends


@njit(**JIT_INNER)
def divergence(agent, B):
    """Estimate of KL(old policy || new) on the last epoch's first minibatch: the mean of rho - 1 - log rho."""
    policy, rollout, block = agent.policy, agent.rollout, agent.block
    A, W, total = policy.outputs, block.x.shape[1], 0.0
    for start in range(0, B, W):
        count = min(W, B - start)
        gather(rollout, block, start, count)
        outputs(policy, block)
        for b in range(count):
            j, logp = rollout.order[start + b], ZERO
            for a in range(A):
                std = max(policy.p[a], STD_MIN)
                z = (rollout.action[a, j] - F4(policy.max_action) * tanh(block.q[a, b])) / std
                logp -= F4(0.5) * z * z + math.log(std) + HALF_LOG_2PI
            log_rho = np.float64(logp - rollout.logp[j])
            total += math.expm1(log_rho) - log_rho
    return total / B


@njit(**JIT_UNCOUNTED)
def improve(agent, memory, c, adapts, ends, key, epoch, updates, rate):
    """Learn from the rollout -> updates so far, the learning rate, ``divergence`` (0 if not asked for), whether the
    weights are finite.

    With normalised observations the first rollout is for their mean and deviation only. epoch, updates: how many there
    were before.
    """
    rollout, seen, paid = agent.rollout, memory.seen, memory.paid
    learns, moved = not seen.on or seen.samples[0] > 0, 0.0
    if paid.on:
        merge(paid)
        for j in range(rollout.reward.shape[0]):
            rollout.reward[j] = min(max(rollout.reward[j] * paid.scale[0], F4(-CLIP)), F4(CLIP))
    if learns:
        updates, rate = learn(agent, c, ends, key, epoch, updates, rate)
        for a in range(agent.policy.std):
            if agent.policy.p[a] < F4(STD_FLOOR):  # NaN stays
                agent.policy.p[a] = F4(STD_FLOOR)
        if adapts:
            moved = divergence(agent, rollout.reward.shape[0] // c.minibatches)
    if seen.on:
        merge(seen)
    return updates, rate, moved, finite(agent.policy.p)
