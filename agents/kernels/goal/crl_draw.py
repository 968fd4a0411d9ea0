"""What an update of contrastive RL learns from: the same rows and numbers as ``CRL.sample`` and ``CRL.noise`` draw.

Axes: P members, R rows, N environments, B batch, S features of a state, G of a goal, A actions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.common.normals import normals
from envolve.agents.kernels.common.rng import bits, uniform
from envolve.agents.kernels.dense.gemm import out_of_line

U = np.uint64
_32, _16 = U(32), U(65536)


class Memory(NamedTuple):
    """A ``TrajectoryReplay``: what an update reads of it, rows of all members behind each other."""

    state: np.ndarray  # [P R N, S]
    action: np.ndarray  # [P R N, A]
    number: np.ndarray  # int64 [P R N], of the row's trajectory
    last: np.ndarray  # int64 [P R N], at number % R: its last write so far
    written: int
    R: int
    N: int


class Members(NamedTuple):
    """All members' numbers, float32; [P] where nothing else is said."""

    params: np.ndarray  # [P, D]
    m: np.ndarray  # [P, D]
    v: np.ndarray  # [P, D]
    log_alpha: np.ndarray  # [P, 1], as the next two
    alpha_m: np.ndarray
    alpha_v: np.ndarray
    mean: np.ndarray  # [P, S + G], of what the actor sees, as the next
    scale: np.ndarray
    updates: np.ndarray  # int64
    replay_key: np.ndarray  # uint64, as the next two
    update_key: np.ndarray
    explore_key: np.ndarray
    policy_lr: np.ndarray  # float64, as the next three
    critic_lr: np.ndarray
    alpha_lr: np.ndarray
    discounting: np.ndarray
    logsumexp_penalty: np.ndarray
    l2_penalty: np.ndarray
    exploration_coef: np.ndarray
    random_goals: np.ndarray
    target_entropy: np.ndarray


@njit(**JIT_UNCOUNTED)
def draw(a, m, memory, i):
    """A batch of member i: ``CRL.sample``."""
    out_of_line()
    B, S, G, A, R, N = a.B, a.policy.S, a.policy.G, a.policy.A, memory.R, memory.N
    update, key = U(m.updates[i]), m.replay_key[i]
    base, newest = i * R * N, memory.written - 1
    stored = U(min(memory.written, R) * N)
    discount = float(m.discounting[i])
    log_discount = math.log(discount)
    for j in range(B):
        counter = U(2) * (_16 * update + U(j))
        row = np.int64(((bits(key, counter) >> _32) * stored) >> _32)
        time, env = row // N, row % N
        slot = memory.number[base + row] % R
        left = memory.last[base + slot * N + env] - (newest - (newest - time) % R)
        u = float(uniform(key, counter + U(1)))
        k = np.int64(math.ceil(math.log1p(u * (discount ** float(left) - 1.0)) / log_discount))
        k = min(max(k, 1), left)
        a.now[j], a.later[j] = base + row, base + (time + k) % R * N + env
    for j in range(B):
        now, later = a.now[j], a.later[j]
        for s in range(S):
            a.sa[s, j] = memory.state[now, s]
        for s in range(A):
            a.sa[S + s, j] = memory.action[now, s]
        for s in range(G):
            a.goal[s, j] = memory.state[later, a.goal_indices[s]]


@njit(**JIT_UNCOUNTED)
def take(a, state, action, goal):
    """A batch from elsewhere: state [B, S], action [B, A], goal [B, G]."""
    S = a.policy.S
    for j in range(a.B):
        for s in range(S):
            a.sa[s, j] = state[j, s]
        for s in range(a.policy.A):
            a.sa[S + s, j] = action[j, s]
        for s in range(a.policy.G):
            a.goal[s, j] = goal[j, s]


@njit(**JIT_UNCOUNTED)
def make_noise(a, m, i):
    """Draws the noise of member i's update: ``CRL.noise``."""
    A, update, key = a.policy.A, U(m.updates[i]), m.update_key[i]
    W = U(A + 1)
    first = _16 * update * W
    for s in range(A):
        normals(key, first + U(s), W, a.noise[s], a.B)
    for j in range(a.B):
        a.other[j] = uniform(key, first + U(j) * W + U(A))
