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
    ZERO,
    Net,
    activations,
    aligned,
    backward,
    backward_both,
    forward,
    net_size,
    predict,
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
    net: Net  # of the features
    value_net: Net
    advantage_net: Net
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
            weights=Weights.create(p),
            common=QLearning.create(task, section),
            net=Net(task.observation_size, H, layers, D, act),
            value_net=Net(D, D, 1, 1, act),
            advantage_net=Net(D, D, 1, A, act),
            features=aligned((D, L)),
            value=aligned((1, L)),
            advantage=aligned((A, L)),
            h=activations(H, layers, L, act),
            h_value=activations(D, 1, L, act),
            h_advantage=activations(D, 1, L, act),
            dh=workspace(H, L),
            dh_head=workspace(D, L),
            d_features=aligned((D, L)),
            d_features2=aligned((D, L)),
            one_features=aligned((D,)),
            one_value=aligned((1,)),
            one_h=aligned((max(H, D),)),
            one_h2=aligned((max(H, D),)),
        )

    @staticmethod
    def columns(task: Task) -> int:
        return 1


@njit(**JIT_UNCOUNTED)
def _offsets(n):
    """Where the nets of value and advantage begin."""
    o_value = net_size(n.net)
    return o_value, o_value + net_size(n.value_net)


def _forward(n, p, x, q):
    A, L = q.shape
    o_value, o_advantage = _offsets(n)
    forward(p, NIL, n.net, x, n.h, n.features, L)
    forward(p, o_value, n.value_net, n.features, n.h_value, n.value, L)
    forward(p, o_advantage, n.advantage_net, n.features, n.h_advantage, n.advantage, L)
    share, base = F4(1.0) / F4(A), n.value[0]
    for a in range(A):  # V - mean A
        for i in range(L):
            base[i] -= share * n.advantage[a, i]
    for a in range(A):
        for i in range(L):
            q[a, i] = base[i] + n.advantage[a, i]


def _backward(n, x, dq):
    """dV = sum_a dQ_a and dA_a = dQ_a - mean_b dQ_b."""
    p, g = n.weights.p, n.weights.g
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
    backward_both(p, o_value, n.value_net, n.features, n.h_value, n.value, n.dh_head, L, g, d)
    backward_both(p, o_advantage, n.advantage_net, n.features, n.h_advantage, n.advantage, n.dh_head, L, g, d2)
    for f in range(D):
        for i in range(L):
            d[f, i] += d2[f, i]
    backward(p, NIL, n.net, x, n.h, d, n.dh, L, g)


def _predict(n, obs, q):
    p, A = n.weights.p, q.shape[0]
    o = predict(p, NIL, n.net, obs, n.one_features, n.one_h, n.one_h2)
    o = predict(p, o, n.value_net, n.one_features, n.one_value, n.one_h, n.one_h2)
    predict(p, o, n.advantage_net, n.one_features, q, n.one_h, n.one_h2)
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
