"""Soft actor-critic for the compiled loop; twin of ``agents/off_policy/sac.py``. What an algorithm consists of:
``training.py``.

An update is some sixteen forward passes of one net: the actor and two target critics at s' (3), the critics at (s, a)
with their gradients (2 + 4), the actor at s with its gradient (1 + 2), and through both critics (2 + 2). At 256 hidden
units, two layers and batch 256 these are 0.55 GFLOP, a floor of 5.0 ms on a core that does 110 GFLOP/s.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

import envolve.agents.off_policy.sac
from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.common.normals import normals
from envolve.agents.kernels.common.rng import normal, uniform
from envolve.agents.kernels.dense.activation import tanh
from envolve.agents.kernels.dense.adam import adam, adam_soft_update
from envolve.agents.kernels.dense.mlp import (
    F4,
    NIL,
    ONE,
    UNIT,
    ZERO,
    Net,
    activations,
    aligned,
    backward,
    backward_input,
    forward,
    predict,
    workspace,
)
from envolve.agents.kernels.dense.vector import exp, larger, log_one_plus
from envolve.agents.kernels.off_policy.dispatch import implement
from envolve.agents.kernels.off_policy.training import Weights, looks_ahead, padded
from envolve.envs.nets.networks import ACTIVATIONS
from envolve.envs.task import Task

U = np.uint64
ACTOR = np.int64(0)  # offset of the actor; a literal would compile anew
TWO, LOG_2, HALF_LOG_2PI = F4(2), F4(math.log(2)), F4(0.5 * math.log(2 * math.pi))


class SAC(NamedTuple):
    """One member's agent: nets of F -> hidden x layers -> 2 A and twice F + A -> hidden x layers -> 1."""

    weights: Weights  # actor | critic 1 | critic 2
    temperature: Weights  # one number, log alpha
    F: int
    A: int
    starts: np.ndarray  # int64 [3], where critic 1 begins in the flat vectors, critic 2, and what is behind it
    actor: Net
    critic: Net
    batch_size: int
    init_episodes: int
    automatic: bool
    lr: float  # of the critics
    actor_lr: float
    alpha_lr: float
    tau: float
    log_std_min: float
    log_std_max: float
    max_action: float
    head: np.ndarray  # [2 A, L], mean and log std of u, then the gradient by them
    noise: np.ndarray  # [A, L]
    squashed: np.ndarray  # [A, L], tanh(u)
    log_prob: np.ndarray  # [L]
    y: np.ndarray  # [L], the critics' target
    q: np.ndarray  # [2, 1, L], both critics, then the gradient by them
    dx: np.ndarray  # [F + A, L], gradient by a critic's input
    da: np.ndarray  # [A, L], gradient by the action
    h: np.ndarray  # [3, layers (PReLU: twice), hidden, L], activations of actor and critics for the backward pass
    dh: np.ndarray
    one_head: np.ndarray  # [2 A], of one observation, as the next two [hidden]
    one_h: np.ndarray
    one_h2: np.ndarray

    @classmethod
    def create(cls, task: Task, section: Any, p: np.ndarray) -> SAC:
        F, A, H, layers = task.observation_size, task.action_size, section.hidden_size, max(1, section.hidden_layer)
        L, nets = padded(section.batch_size), envolve.agents.off_policy.sac.SAC.nets_of(task, section, H, layers)
        actor_act, critic_act, _ = (ACTIVATIONS.index(net.activation) for net in nets)
        planes = activations(H, layers, L, critic_act).shape  # a linear actor keeps no more
        return cls(
            weights=Weights.create(p),
            temperature=Weights.create(np.array([math.log(section.alpha)], F4)),
            F=F,
            A=A,
            starts=np.cumsum([net.size for net in nets]),
            actor=Net(F, H, layers, 2 * A, actor_act),
            critic=Net(F + A, H, layers, 1, critic_act),
            batch_size=section.batch_size,
            init_episodes=section.init_episodes,
            automatic=section.automatic_entropy_tuning,
            lr=section.lr,
            actor_lr=section.lr,
            alpha_lr=section.lr,
            tau=section.tau,
            log_std_min=section.log_std_min,
            log_std_max=section.log_std_max,
            max_action=float(task.max_action),  # a class of the user's may say 2, another type to numba
            head=aligned((2 * A, L)),
            noise=aligned((A, L)),
            squashed=aligned((A, L)),
            log_prob=aligned((L,)),
            y=aligned((L,)),
            q=aligned((2, 1, L)),
            dx=aligned((F + A, L)),
            da=aligned((A, L)),
            h=aligned((3, *planes)),
            dh=workspace(H, L),
            one_head=aligned((2 * A,)),
            one_h=aligned((H,)),
            one_h2=aligned((H,)),
        )

    @staticmethod
    def columns(task: Task) -> int:
        return task.action_size


# ---------------------------------------------------------------------------------------------------------- acting


def begin_episode(agent, episode):
    pass


@njit(**JIT_UNCOUNTED)
def gaussian(agent, obs):
    """Mean and log std at one observation, into one_head."""
    predict(agent.weights.p, ACTOR, agent.actor, obs, agent.one_head, agent.one_h, agent.one_h2)


@njit(**JIT_UNCOUNTED)
def clamped(agent, log_std):
    return min(max(log_std, F4(agent.log_std_min)), F4(agent.log_std_max))


def test_action(agent, key, step, obs, action):
    """The mean, squashed."""
    gaussian(agent, obs)
    for a in range(agent.A):
        action[a] = tanh(agent.one_head[a]) * F4(agent.max_action)
    return 0


def explore(agent, key, decision, episode, obs, action):
    """Uniform in the first episodes, then from the policy; decision d uses counter d A + a for action a."""
    A, largest = agent.A, F4(agent.max_action)
    if episode < agent.init_episodes:
        for a in range(A):
            action[a] = (TWO * uniform(key, U(decision * A + a)) - ONE) * largest
        return 0
    gaussian(agent, obs)
    for a in range(A):
        std = math.exp(clamped(agent, agent.one_head[A + a]))
        action[a] = tanh(agent.one_head[a] + std * normal(key, U(decision * A + a))) * largest
    return 0


# -------------------------------------------------------------------------------------------------------- learning


@njit(**JIT_UNCOUNTED)
def sample_actions(agent, x, key, first, action):
    """Actions at the observations x into the rows ``action``, their log-probabilities into log_prob.

    first: counter of the noise of sample 0 and action 0; sample i has those from first + 2 A i on.
    """
    A, B, L, head, noise, t = agent.A, agent.batch_size, agent.y.shape[0], agent.head, agent.noise, agent.squashed
    forward(agent.weights.p, ACTOR, agent.actor, x, agent.h[0], head, L)
    largest, log_prob = F4(agent.max_action), agent.log_prob
    for i in range(B):
        log_prob[i] = ZERO
    for a in range(A):
        normals(key, U(first + a), U(2 * A), noise[a], B)
        for i in range(B):
            n, log_std = noise[a, i], clamped(agent, head[A + a, i])
            u = head[a, i] + exp(log_std) * n
            t[a, i] = tanh(u)
            action[a, i] = t[a, i] * largest
            # log N(u; mean, std) - log(1 - tanh(u)^2), the latter 2 (log 2 - u - softplus(-2 u))
            softplus = larger(-TWO * u, ZERO) + log_one_plus(exp(-abs(TWO * u)))
            log_prob[i] -= F4(0.5) * n * n + HALF_LOG_2PI + log_std + TWO * (LOG_2 - u - softplus)


@njit(**JIT_UNCOUNTED)
def critics(agent, p, x):
    """Both critics of p at x[F + A, L], into q; keeps activations."""
    for k in range(2):
        forward(p, agent.starts[k], agent.critic, x, agent.h[1 + k], agent.q[k], agent.y.shape[0])


@njit(**JIT_UNCOUNTED)
def critic_gradient(agent, batch, alpha):
    """Into g: of the mean of (Q_k(s, a) - y)^2 with y = r + gamma (1 - d) (min_k Q_target,k(s', a') - alpha log pi);
    a' and log pi are there."""
    w, B, L, q, y = agent.weights, agent.batch_size, agent.y.shape[0], agent.q, agent.y
    reward, discount = batch.reward, batch.discount
    if looks_ahead(batch):
        critics(agent, w.target, batch.next_sa)
        for i in range(B):
            y[i] = reward[i] + discount[i] * (min(q[0, 0, i], q[1, 0, i]) - alpha * agent.log_prob[i])
    else:
        for i in range(B):
            y[i] = reward[i]
    critics(agent, w.p, batch.sa)
    scale = TWO / F4(B)
    for k in range(2):
        for i in range(B):
            q[k, 0, i] = (q[k, 0, i] - y[i]) * scale
        for i in range(B, L):
            q[k, 0, i] = ZERO
        backward(w.p, agent.starts[k], agent.critic, batch.sa, agent.h[1 + k], q[k], agent.dh, L, w.g)


@njit(**JIT_UNCOUNTED)
def actor_gradient(agent, batch, alpha):
    """Into g: of the mean of alpha log pi(a | s) - min_k Q_k(s, a); a and log pi are there, a in the rows of batch.sa.

    dlog pi / du = 2 tanh(u), at u = mean + std n; dlog pi / dlog std = that times std n, minus 1.
    """
    w, F, A, B, L = agent.weights, agent.F, agent.A, agent.batch_size, agent.y.shape[0]
    q, t, da = agent.q, agent.squashed, agent.da
    critics(agent, w.p, batch.sa)
    share = ONE / F4(B)
    for i in range(B):
        first = q[0, 0, i] < q[1, 0, i]
        q[0, 0, i] = -share if first else ZERO
        q[1, 0, i] = ZERO if first else -share
    for k in range(2):
        for i in range(B, L):
            q[k, 0, i] = ZERO
        backward_input(w.p, agent.starts[k], agent.critic, batch.sa, agent.h[1 + k], q[k], agent.dh, L, agent.dx)
        for a in range(A):
            for i in range(L):
                da[a, i] = agent.dx[F + a, i] + (da[a, i] if k == 1 else ZERO)
    head, entropy, largest = agent.head, alpha * share, F4(agent.max_action)
    for a in range(A):
        for i in range(B):
            log_std = clamped(agent, head[A + a, i])
            du = da[a, i] * largest * (ONE - t[a, i] * t[a, i]) + entropy * TWO * t[a, i]
            head[a, i] = du
            inside = log_std == head[A + a, i]  # else the clamp stops the gradient
            head[A + a, i] = du * exp(log_std) * agent.noise[a, i] - entropy if inside else ZERO
        for i in range(B, L):
            head[a, i] = ZERO
            head[A + a, i] = ZERO
    backward(w.p, ACTOR, agent.actor, batch.sa, agent.h[0], head, agent.dh, L, w.g)


@njit(**JIT_UNCOUNTED)
def train_on(agent, batch, key, update):
    """Critics, the actor by the new critics, the temperature, the target critics:
    ``envolve.agents.off_policy.sac.SAC.update``."""
    w, temperature, F, A, B = agent.weights, agent.temperature, agent.F, agent.A, agent.batch_size
    actor_end, end = agent.starts[0], agent.starts[2]
    unbiased, scale = 1.0 / (1.0 - 0.9**update), F4(1.0 / math.sqrt(1.0 - 0.999**update))
    alpha = F4(math.exp(temperature.p[0]))
    first = update * 65536 * 2 * A
    if looks_ahead(batch):
        sample_actions(agent, batch.next_sa, key, first, batch.next_sa[F:])
    critic_gradient(agent, batch, alpha)
    adam_soft_update(w.p, w.target, w.m, w.v, w.g, actor_end, end, F4(agent.lr * unbiased), scale, F4(agent.tau))
    sample_actions(agent, batch.sa, key, first + A, batch.sa[F:])
    actor_gradient(agent, batch, alpha)
    adam(w.p, w.m, w.v, w.g, ACTOR, actor_end, F4(agent.actor_lr * unbiased), scale)
    if agent.automatic:
        total = 0.0  # gradient by log alpha of -log alpha (log pi - A)
        for i in range(B):
            total += F4(A) - agent.log_prob[i]
        temperature.g[0] = total / B
        rate = F4(agent.alpha_lr * unbiased)
        adam(temperature.p, temperature.m, temperature.v, temperature.g, NIL, UNIT, rate, scale)


def learn(agent, batch, key, decision, update):
    train_on(agent, batch, key, update)


implement(SAC, begin_episode=begin_episode, explore=explore, test_action=test_action, learn=learn)
