"""Double DQN for the compiled loop; twin of ``agents/off_policy/ddqn.py``. What an algorithm consists of:
``training.py``.

Everything but the Q network itself is shared with the dueling variant (``dueling_ddqn.py``): a Q network is a class
with ``q_forward``, ``q_backward`` and ``q_predict``.

Cost per step at 4-57-2 tanh, batch 199: the update's 0.59 MFLOP and 34,000 tanh, i.e. a floor of 12 to 14 us on a core
that does 110 GFLOP/s (docs/back_ends.md).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_INNER
from envolve.agents.kernels.common.rng import integer, uniform
from envolve.agents.kernels.dense.activation import PRELU
from envolve.agents.kernels.dense.adam import adam_soft_update
from envolve.agents.kernels.dense.gemm import out_of_line
from envolve.agents.kernels.dense.mlp import (
    F4,
    NIL,
    ZERO,
    Net,
    activations,
    aligned,
    backward,
    forward,
    predict,
    workspace,
)
from envolve.agents.kernels.dense.mlp_small import INPUTS, OUTPUTS, backward_small
from envolve.agents.kernels.off_policy.dispatch import by_type, implement
from envolve.agents.kernels.off_policy.training import Weights, padded
from envolve.envs.nets.networks import ACTIVATIONS
from envolve.envs.task import Task

U = np.uint64


class QLearning(NamedTuple):
    """What both variants have: hyperparameters and the values of one batch."""

    batch_size: int
    lr: float
    tau: float
    eps_init: float
    eps_min: float
    eps_decay: float
    eps: np.ndarray  # float64 [1], of this episode
    q: np.ndarray  # [A, L], Q(s, .)
    q_next: np.ndarray  # [A, L], Q(s', .), then the gradient of the loss by q
    q_target: np.ndarray  # [A, L], Q_target(s', .)
    best: np.ndarray  # [L]
    values: np.ndarray  # [A], Q of one observation

    @classmethod
    def create(cls, task: Task, section: Any) -> QLearning:
        A, L = task.num_actions, padded(section.batch_size)
        return cls(
            batch_size=section.batch_size,
            lr=section.lr,
            tau=section.tau,
            eps_init=section.eps_init,
            eps_min=section.eps_min,
            eps_decay=section.eps_decay,
            eps=np.zeros(1),
            q=aligned((A, L)),
            q_next=aligned((A, L)),
            q_target=aligned((A, L)),
            best=aligned((L,)),
            values=aligned((A,)),
        )


class DDQN(NamedTuple):
    """One member's agent: observation -> hidden x layers -> a value per action."""

    weights: Weights
    common: QLearning
    net: Net
    h: np.ndarray  # what the backward pass needs of the forward pass
    dh: np.ndarray  # scratch of the backward pass
    one_h: np.ndarray  # [hidden], of one observation
    one_h2: np.ndarray

    @classmethod
    def create(cls, task: Task, section: Any, p: np.ndarray) -> DDQN:
        H, layers, L = section.hidden_size, max(1, section.hidden_layer), padded(section.batch_size)
        act = ACTIVATIONS.index(section.activation_fn)
        return cls(
            weights=Weights.create(p),
            common=QLearning.create(task, section),
            net=Net(task.observation_size, H, layers, task.num_actions, act),
            h=activations(H, layers, L, act),
            dh=workspace(H, L),
            one_h=aligned((H,)),
            one_h2=aligned((H,)),
        )

    @staticmethod
    def columns(task: Task) -> int:
        return 1


# ------------------------------------------------------------------------------------------------- the Q network


@by_type
def q_forward(agent, p, x, q):
    """Q(x, .) by the parameters p (weights.p or weights.target), x: [>= F, L] -> q[A, L]; keeps activations."""


@by_type
def q_backward(agent, x, dq):
    """weights.g <- gradient of the loss whose derivative by Q(x, .) is dq, after q_forward(agent, weights.p, x)."""


@by_type
def q_predict(agent, obs, q):
    """Q(obs, .) of one observation -> q[A]."""


def _forward(agent, p, x, q):
    forward(p, NIL, agent.net, x, agent.h, q, q.shape[1])


def _backward(agent, x, dq):
    p, g, net, L = agent.weights.p, agent.weights.g, agent.net, dq.shape[1]
    if net.inputs == INPUTS and net.outputs == OUTPUTS and net.layers == 1 and net.act != PRELU:
        backward_small(p, net.hidden, x, agent.h[0], dq, L, g, net.act)
    else:
        backward(p, NIL, net, x, agent.h, dq, agent.dh, L, g)


def _predict(agent, obs, q):
    predict(agent.weights.p, NIL, agent.net, obs, q, agent.one_h, agent.one_h2)


# --------------------------------------------------------------------------------------------------- the algorithm


def begin_episode(agent, episode):
    c = agent.common
    c.eps[0] = c.eps_init if episode == 0 else max(c.eps[0] * c.eps_decay, c.eps_min)


@njit(**JIT_INNER)
def greedy(agent, obs, action):
    """argmax_a Q(obs, a); the first of equal ones."""
    q = agent.common.values
    q_predict(agent, obs, q)
    best = 0
    for a in range(1, q.shape[0]):
        if q[a] > q[best]:
            best = a
    action[0] = F4(best)
    return best


def test_action(agent, key, step, obs, action):
    return greedy(agent, obs, action)


def explore(agent, key, decision, episode, obs, action):
    """Epsilon-greedy; decision d uses the counters 2 d and 2 d + 1."""
    if uniform(key, U(2 * decision)) < F4(agent.common.eps[0]):
        a = integer(key, U(2 * decision + 1), U(agent.common.values.shape[0]))
        action[0] = F4(a)
        return a
    return greedy(agent, obs, action)


def learn(agent, batch, key, decision, update):
    """One double-DQN update.

    y = r + gamma (1 - d) Q_target(s', argmax_a Q(s', a)),  loss = mean (Q(s, a) - y)^2
    """
    out_of_line()
    w, c = agent.weights, agent.common
    q, q2, qt, best, reward, discount = c.q, c.q_next, c.q_target, c.best, batch.reward, batch.discount
    A, L, B = q.shape[0], q.shape[1], c.batch_size
    taken = batch.sa[batch.sa.shape[0] - 1]
    q_forward(agent, w.target, batch.next_sa, qt)
    q_forward(agent, w.p, batch.next_sa, q2)
    q_forward(agent, w.p, batch.sa, q)
    for i in range(L):
        best[i] = q2[0, i]
    for a in range(1, A):  # qt[0] becomes Q_target(s', argmax_a Q(s', a))
        for i in range(L):
            better = q2[a, i] > best[i]
            qt[0, i] = qt[a, i] if better else qt[0, i]
            best[i] = q2[a, i] if better else best[i]
    scale = F4(2.0) / F4(B)
    for a in range(A):  # dLoss/dQ, into q2
        for i in range(B):
            error = (q[a, i] - (reward[i] + discount[i] * qt[0, i])) * scale
            q2[a, i] = error if taken[i] == F4(a) else ZERO
        for i in range(B, L):
            q2[a, i] = ZERO
    q_backward(agent, batch.sa, q2)
    c1, c2 = 1.0 - 0.9**update, 1.0 - 0.999**update
    adam_soft_update(w.p, w.target, w.m, w.v, w.g, NIL, w.p.shape[0], F4(c.lr / c1), F4(1.0 / math.sqrt(c2)), F4(c.tau))


implement(DDQN, q_forward=_forward, q_backward=_backward, q_predict=_predict)
implement(DDQN, begin_episode=begin_episode, explore=explore, test_action=test_action, learn=learn)
