"""Dueling double DQN for the compiled loop (Wang et al. 2016, https://arxiv.org/abs/1511.06581); twin of
``agents/off_policy/dueling_ddqn.py``. Its Q network; all else is double DQN's (``ddqn.py``).

Q = V + A - mean_a A, by three nets behind each other: features of the observation, and on them value and advantages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.dense.mlp import (
    F4,
    NIL,
    UNIT,
    ZERO,
    activations,
    aligned,
    backward,
    backward_both,
    forward,
    predict,
    size,
    workspace,
)
from envolve.agents.kernels.off_policy import ddqn
from envolve.agents.kernels.off_policy.ddqn import QLearning
from envolve.agents.kernels.off_policy.dispatch import implement
from envolve.agents.kernels.off_policy.training import Weights, padded
from envolve.envs.nets.networks import ACTIVATIONS
from envolve.envs.task import Task


class DuelingDDQN(NamedTuple):
    """One member's agent."""

    weights: Weights
    common: QLearning
    inputs: int
    hidden: int  # of the feature net
    layers: int
    act: int
    features: np.ndarray  # [D, L], output of the feature net, without activation; D: also the hidden units of the heads
    value: np.ndarray  # [1, L], V, then the gradient by it
    advantage: np.ndarray  # [A, L], A, then the gradient by it
    h: np.ndarray  # hidden activations of the feature net
    h_value: np.ndarray
    h_advantage: np.ndarray
    dh: np.ndarray  # scratch of the backward pass of the feature net
    dh_head: np.ndarray  # and of the heads
    d_features: np.ndarray  # [D, L], gradient by the features
    d_features2: np.ndarray
    one_features: np.ndarray  # [D], of one observation, as the rest
    one_value: np.ndarray  # [1]
    one_h: np.ndarray  # [max(hidden, D)]
    one_h2: np.ndarray

    @classmethod
    def create(cls, task: Task, section: Any, p: np.ndarray) -> DuelingDDQN:
        H, layers, L = section.hidden_size, max(1, section.hidden_layer), padded(section.batch_size)
        D, A, act = section.feature_dim, task.num_actions, ACTIVATIONS.index(section.activation_fn)
        return cls(
            Weights.create(p), QLearning.create(task, section), task.observation_size, H, layers,
            act, aligned((D, L)), aligned((1, L)), aligned((A, L)),
            activations(H, layers, L, act), activations(D, 1, L, act), activations(D, 1, L, act), workspace(H, L),
            workspace(D, L), aligned((D, L)), aligned((D, L)), aligned((D,)), aligned((1,)), aligned((max(H, D),)),
            aligned((max(H, D),)),
        )  # fmt: skip

    @staticmethod
    def columns(task: Task) -> int:
        return 1


@njit(**JIT_UNCOUNTED)
def _offsets(n):
    """Where the nets of value and advantage begin."""
    D = n.features.shape[0]
    o_value = size(n.inputs, n.hidden, n.layers, D, n.act)
    return o_value, o_value + size(D, D, UNIT, UNIT, n.act)


def _forward(n, p, x, q):
    D, A, L = n.features.shape[0], q.shape[0], q.shape[1]
    o_value, o_advantage = _offsets(n)
    forward(p, NIL, n.inputs, n.hidden, n.layers, D, x, n.h, n.features, L, n.act)
    forward(p, o_value, D, D, UNIT, UNIT, n.features, n.h_value, n.value, L, n.act)
    forward(p, o_advantage, D, D, UNIT, A, n.features, n.h_advantage, n.advantage, L, n.act)
    share, base = F4(1.0) / F4(A), n.value[0]
    for a in range(A):  # V - mean A
        for i in range(L):
            base[i] -= share * n.advantage[a, i]
    for a in range(A):
        for i in range(L):
            q[a, i] = base[i] + n.advantage[a, i]


def _backward(n, x, dq):
    """dV = sum_a dQ_a and dA_a = dQ_a - mean_b dQ_b."""
    p, g, act = n.weights.p, n.weights.g, n.act
    D, A, L = n.features.shape[0], dq.shape[0], dq.shape[1]
    o_value, o_advantage = _offsets(n)
    share, total = F4(1.0) / F4(A), n.value[0]
    for i in range(L):
        total[i] = ZERO
    for a in range(A):
        for i in range(L):
            total[i] += dq[a, i]
    for a in range(A):
        for i in range(L):
            n.advantage[a, i] = dq[a, i] - share * total[i]
    d, d2 = n.d_features, n.d_features2
    backward_both(p, o_value, D, D, UNIT, UNIT, n.features, n.h_value, n.value, n.dh_head, L, g, d, act)
    backward_both(p, o_advantage, D, D, UNIT, A, n.features, n.h_advantage, n.advantage, n.dh_head, L, g, d2, act)
    for f in range(D):
        for i in range(L):
            d[f, i] += d2[f, i]
    backward(p, NIL, n.inputs, n.hidden, n.layers, D, x, n.h, d, n.dh, L, g, act)


def _predict(n, obs, q):
    p, D, A, act = n.weights.p, n.features.shape[0], q.shape[0], n.act
    o = predict(p, NIL, n.inputs, n.hidden, n.layers, D, act, obs, n.one_features, n.one_h, n.one_h2)
    o = predict(p, o, D, D, UNIT, UNIT, act, n.one_features, n.one_value, n.one_h, n.one_h2)
    predict(p, o, D, D, UNIT, A, act, n.one_features, q, n.one_h, n.one_h2)
    mean = ZERO
    for a in range(A):
        mean += q[a]
    mean /= F4(A)
    for a in range(A):
        q[a] += n.one_value[0] - mean


implement(DuelingDDQN, q_forward=_forward, q_backward=_backward, q_predict=_predict)
implement(
    DuelingDDQN, begin_episode=ddqn.begin_episode, explore=ddqn.explore, test_action=ddqn.test_action, learn=ddqn.learn
)
