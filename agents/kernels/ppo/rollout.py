"""A rollout: decisions in N environments, and the order in which they are learned from. Twin of
``agents/ppo/rollout.py``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.common import worlds
from envolve.agents.kernels.common.rng import bits
from envolve.agents.kernels.common.tasks import STATE_SIZE
from envolve.agents.kernels.dense.activation import F4
from envolve.agents.kernels.dense.mlp import aligned
from envolve.agents.kernels.off_policy.training import U
from envolve.agents.kernels.ppo.policy import actor, choose, draw_noise, log_prob


class Environments(NamedTuple):
    """N of them."""

    s: np.ndarray  # float64 [N, S], states of the real task
    obs: np.ndarray  # float32 [N F]
    phi: np.ndarray  # float32 [N, 1], see ``KernelWorld``
    t: np.ndarray  # int64 [N], steps in their episodes
    total: np.ndarray  # float64 [N], returns so far
    ended: np.ndarray  # bool [N], by the last decision

    @classmethod
    def create(cls, N: int, F: int) -> Environments:
        return cls(
            s=np.zeros((N, STATE_SIZE)),
            obs=aligned((N * F,)),
            phi=aligned((N, 1)),
            t=np.zeros(N, np.int64),
            total=np.zeros(N),
            ended=np.zeros(N, np.bool_),
        )


class Rollout(NamedTuple):
    """R = T N transitions; that of decision t in environment n is number t N + n."""

    obs: np.ndarray  # float32 [F, R], before the decision
    last: np.ndarray  # float32 [F, R], states that no transition begins with: after an episode's or the rollout's end
    at: np.ndarray  # int64 [R], the transition that led there
    action: np.ndarray  # float32 [1 or A, R]
    logp: np.ndarray  # float32 [R], as the next four
    reward: np.ndarray
    value: np.ndarray
    ahead: np.ndarray  # value of the next state, where ``last`` holds it
    returns: np.ndarray
    terminated: np.ndarray  # bool [R]
    over: np.ndarray  # bool [R], terminated or cut
    order: np.ndarray  # uint64 [R], shuffled transitions; hashed, bucket (int64): scratch of the shuffle
    hashed: np.ndarray
    bucket: np.ndarray

    @classmethod
    def create(cls, R: int, F: int, actions: int) -> Rollout:
        logp, reward, value, ahead, returns = (aligned((R,)) for _ in range(5))
        return cls(
            obs=aligned((F, R)),
            last=aligned((F, R)),
            at=np.zeros(R, np.int64),
            action=aligned((actions, R)),
            logp=logp,
            reward=reward,
            value=value,
            ahead=ahead,
            returns=returns,
            terminated=np.zeros(R, np.bool_),
            over=np.zeros(R, np.bool_),
            order=np.zeros(R, np.uint64),
            hashed=np.zeros(R, np.uint64),
            bucket=np.zeros(1 + (1 << (R - 1).bit_length()), np.int64),
        )


@njit(**JIT_UNCOUNTED)
def environment(envs, w, n):
    """World ``w`` with the state of environment n."""
    F = w.obs.shape[0]
    return worlds.KernelWorld(
        w.kind,
        w.task,
        w.num_actions,
        w.rn_type,
        w.hidden,
        w.layers,
        w.act,
        w.raw_done,
        w.bandit,
        w.stored,
        w.gamma,
        w.params,
        envs.s[n],
        envs.obs[n * F : (n + 1) * F],
        w.inputs,
        envs.phi[n],
        w.out,
        w.h,
        w.h2,
        w.codes,
    )


@njit(**JIT_UNCOUNTED)
def pick(policy, rollout, obs, n, i, key, number):
    """An action in environment n, for which the actor's outputs are there; transition i keeps it -> its index, if it is
    discrete. obs: float32 [F]; number: of the draw."""
    for f in range(obs.shape[0]):
        rollout.obs[f, i] = obs[f]
    draw_noise(policy, key, number)
    index = choose(policy, n)
    rollout.logp[i] = log_prob(policy, n, index)
    rollout.action[0, i] = F4(index)
    for a in range(policy.std):
        rollout.action[a, i] = policy.drawn[a]
    return index


@njit(**JIT_UNCOUNTED)
def keep(rollout, obs, i, reward, terminated, over, last, ends):
    """Keeps what the action of transition i led to -> states in ``last``. obs: float32 [F], before any reset; last:
    whether the rollout ends with it; ends: how many states ``last`` held before."""
    rollout.reward[i] = reward
    rollout.over[i] = over
    rollout.terminated[i] = terminated
    if not terminated and (over or last):
        for f in range(obs.shape[0]):
            rollout.last[f, ends] = obs[f]
        rollout.at[ends] = i
        ends += 1
    return ends


@njit(**JIT_UNCOUNTED)
def decide(policy, envs, rollout, w, c, key, decision, t, ends):
    """Decision t of the rollout in every environment -> steps taken, states in ``last``, whether the world failed.

    ends: how many states ``last`` held before.
    """
    N, steps, failed = c.num_envs, 0, False
    actor(policy, envs.obs, N)
    for n in range(N):
        i = t * N + n
        world = environment(envs, w, n)
        index = pick(policy, rollout, world.obs, n, i, key, decision * N + n)
        left = c.max_steps - envs.t[n]
        reward, _, terminated, lost, taken = worlds.repeat(world, index, policy.sent, c.same_action_num, left)
        envs.t[n] += taken
        envs.total[n] += reward
        over = terminated or lost or envs.t[n] >= c.max_steps
        envs.ended[n] = over
        terminated = terminated or (over and not c.bootstrap_time_limit)
        ends = keep(rollout, world.obs, i, reward, terminated, over, t == c.rollout_steps - 1, ends)
        steps += taken
        failed = failed or lost
    return steps, ends, failed


@njit(**JIT_UNCOUNTED)
def shuffle(rollout, key, first):
    """``order`` <- the transitions in the order of the hashes bits(first + i) with their lowest bits replaced by i."""
    order, hashed, begin = rollout.order, rollout.hashed, rollout.bucket
    R = order.shape[0]
    low, width = U(1), U(1)
    while low < U(R):
        low, width = low << U(1), width + U(1)
    low -= U(1)
    shift = U(64) - width  # the highest of 63 bits: as many buckets as transitions, or up to twice as many
    keep = ~low & U(2**63 - 1)
    begin[:] = 0
    for i in range(R):
        hashed[i] = bits(key, U(first) + U(i)) & keep | U(i)
        begin[(hashed[i] >> shift) + U(1)] += 1
    for b in range(1, begin.shape[0]):
        begin[b] += begin[b - 1]
    for i in range(R):
        b = hashed[i] >> shift
        order[begin[b]] = hashed[i]
        begin[b] += 1
    for i in range(1, R):  # within the buckets
        value, j = order[i], i
        while j > 0 and order[j - 1] > value:
            order[j] = order[j - 1]
            j -= 1
        order[j] = value
    for i in range(R):
        order[i] &= low
