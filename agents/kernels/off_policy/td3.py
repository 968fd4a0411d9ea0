"""TD3 for the compiled loop; twin of ``agents/off_policy/td3.py``. What an algorithm consists of: ``training.py``.

Everything but the action, its noise and its gradient is shared with the discrete variant (``td3_discrete.py``): a TD3
is a class with ``target_actions``, ``actor_actions`` and ``actor_gradient``.

Cost of an update at 128 x 2, batch 256, policy_delay 2: 9 passes through a net of 8.7 MFLOP for the critics and half of
5 for the actor, 99 MFLOP: a floor of 0.9 ms on a core that does 110 GFLOP/s.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_INNER
from envolve.agents.kernels.common.normals import normals
from envolve.agents.kernels.common.rng import normal, uniform
from envolve.agents.kernels.dense.activation import tanh
from envolve.agents.kernels.dense.adam import adam, soft_update
from envolve.agents.kernels.dense.mlp import (
    F4,
    ONE,
    ZERO,
    backward,
    backward_input,
    forward,
    predict,
)
from envolve.agents.kernels.off_policy.dispatch import by_type, implement
from envolve.agents.kernels.off_policy.training import Weights, looks_ahead
from envolve.agents.kernels.off_policy.twin_critics import TwinCritics
from envolve.envs.task import Task

U, I8 = np.uint64, np.int64
ACTOR = I8(0)  # where the actor begins; a numpy integer, as numba compiles what is called anew for each literal
SAMPLES = U(65536)  # counters of an update, in samples


class TD3(NamedTuple):
    """One member's agent: actor | critic 1 | critic 2; a critic reads [observation, action]."""

    weights: Weights
    common: TwinCritics
    max_action: float

    @classmethod
    def create(cls, task: Task, section: Any, p: np.ndarray) -> TD3:
        return cls(Weights.create(p), TwinCritics.create(task, section), float(task.max_action))

    @staticmethod
    def columns(task: Task) -> int:
        return task.action_size


# ------------------------------------------------------------------------------------------ what the variants differ in


@by_type
def target_actions(agent, out, key, update, sa):
    """sa[F:, :B] <- the actions for outputs out[A, L] of the target actor, with noise."""


@by_type
def actor_actions(agent, out, key, update, sa):
    """sa[F:, :B] <- the actions for outputs out[A, L] of the actor; keeps what ``actor_gradient`` needs."""


@by_type
def actor_gradient(agent, da, out):
    """out[A, :B] <- the gradient by the actor's outputs; da[F:, :B]: that by the actions which they became."""


# ------------------------------------------------------------------------------------------------------------- update


@njit(**JIT_INNER)
def critic(agent, p, o, sa, q):
    """Values q[1, L] of the critic at offset o of p; keeps activations."""
    c = agent.common
    forward(p, o, c.critic, sa, c.h, q, q.shape[1], c.norm)


@njit(**JIT_INNER)
def critic_gradient(agent, o, sa):
    """g of the critic at offset o <- gradient of mean (Q(sa) - y)^2."""
    w, c = agent.weights, agent.common
    critic(agent, w.p, o, sa, c.q)
    q, y, scale = c.q[0], c.y[0], F4(2.0) / F4(c.batch_size)
    for i in range(c.batch_size):
        q[i] = scale * (q[i] - y[i])
    for i in range(c.batch_size, q.shape[0]):
        q[i] = ZERO
    backward(w.p, o, c.critic, sa, c.h, c.q, c.dh, q.shape[0], w.g, c.norm)


@njit(**JIT_INNER)
def adam_on(agent, lo, hi, update, lr):
    """Adam on [lo, hi), the ``update``-th step there."""
    w = agent.weights
    step_size, v_scale = lr / (1.0 - 0.9**update), 1.0 / math.sqrt(1.0 - 0.999**update)
    adam(w.p, w.m, w.v, w.g, lo, hi, F4(step_size), F4(v_scale))


@njit(**JIT_INNER)
def update_critics(agent, batch, key, update):
    """The critics towards y = r + gamma (1 - d) min_k Q_target,k(s', a'), a' the target actor's action with noise."""
    w, c = agent.weights, agent.common
    twin = c.critic2 < w.p.shape[0]
    if looks_ahead(batch):
        targets(agent, batch, key, update, twin)
    else:
        y = c.y[0]
        for i in range(y.shape[0]):
            y[i] = batch.reward[i]
    critic_gradient(agent, c.critic1, batch.sa)
    if twin:
        critic_gradient(agent, c.critic2, batch.sa)
    adam_on(agent, c.critic1, w.p.shape[0], update, c.lr)


@njit(**JIT_INNER)
def targets(agent, batch, key, update, twin):
    """y of ``update_critics``."""
    w, c = agent.weights, agent.common
    L = c.y.shape[1]
    forward(w.target, ACTOR, c.actor, batch.next_sa, c.h, c.out, L, c.norm)
    target_actions(agent, c.out, key, update, batch.next_sa)
    critic(agent, w.target, c.critic1, batch.next_sa, c.y)
    y, q = c.y[0], c.q[0]
    if twin:
        critic(agent, w.target, c.critic2, batch.next_sa, c.q)
    for i in range(L):
        y[i] = batch.reward[i] + batch.discount[i] * (min(y[i], q[i]) if twin else y[i])


@njit(**JIT_INNER)
def update_actor(agent, batch, key, update):
    """The actor towards larger Q1(s, a(s)), the critic held fixed; then all targets. Overwrites the batch's actions."""
    w, c = agent.weights, agent.common
    B, L, sa = c.batch_size, c.y.shape[1], batch.sa
    forward(w.p, ACTOR, c.actor, sa, c.actor_h, c.out, L, c.norm)
    actor_actions(agent, c.out, key, update, sa)
    critic(agent, w.p, c.critic1, sa, c.q)
    dq = c.q[0]
    for i in range(L):
        dq[i] = -ONE / F4(B) if i < B else ZERO
    backward_input(w.p, c.critic1, c.critic, sa, c.h, c.q, c.dh, L, c.dx, c.norm)
    actor_gradient(agent, c.dx, c.out)
    for a in range(c.actions):
        for i in range(B, L):
            c.out[a, i] = ZERO
    backward(w.p, ACTOR, c.actor, sa, c.actor_h, c.out, c.dh, L, w.g, c.norm)
    c.actor_updates[0] += 1
    adam_on(agent, ACTOR, c.critic1, c.actor_updates[0], c.actor_lr)
    soft_update(w.p, w.target, ACTOR, w.p.shape[0], F4(c.tau))


def learn(agent, batch, key, decision, update):
    update_critics(agent, batch, key, update)
    if decision % agent.common.policy_delay == 0:
        update_actor(agent, batch, key, update)


@njit(**JIT_INNER)
def actor_predict(agent, obs, out):
    """Outputs out[A] of the actor for one observation."""
    p, c = agent.weights.p, agent.common
    predict(p, ACTOR, c.actor, obs, out, c.one_h, c.one_h2, c.norm)


@njit(**JIT_INNER)
def clipped_noise(agent, z):
    """The noise on a target's action, from the standard normal number z."""
    c = agent.common
    return min(max(F4(c.policy_std) * z, -F4(c.policy_std_clip)), F4(c.policy_std_clip))


def begin_episode(agent, episode):
    pass


# ---------------------------------------------------------------------------------------------- the continuous variant


@njit(**JIT_INNER)
def _noisy_action(agent, key, counter, obs, action):
    """The actor's action with exploration noise from ``counter`` on."""
    c, bound = agent.common, F4(agent.max_action)
    actor_predict(agent, obs, c.one_out)
    for a in range(c.actions):
        noise = F4(c.action_std) * bound * normal(key, U(counter + a))
        action[a] = min(max(bound * tanh(c.one_out[a]) + noise, -bound), bound)


def _explore(agent, key, decision, episode, obs, action):
    """Decision d uses the counters 2 A d .. 2 A d + 2 A - 1: uniform actions, then noise."""
    c, bound = agent.common, F4(agent.max_action)
    first = decision * 2 * c.actions
    if episode < c.init_episodes:
        for a in range(c.actions):
            action[a] = (F4(2.0) * uniform(key, U(first + a)) - ONE) * bound
    else:
        _noisy_action(agent, key, first + c.actions, obs, action)
    return 0


def _test_action(agent, key, step, obs, action):
    c = agent.common
    if c.test_noise:
        _noisy_action(agent, key, step * c.actions, obs, action)
    else:
        actor_predict(agent, obs, c.one_out)
        for a in range(c.actions):
            action[a] = F4(agent.max_action) * tanh(c.one_out[a])
    return 0


def _target_actions(agent, out, key, update, sa):
    c, bound = agent.common, F4(agent.max_action)
    for a in range(c.actions):
        row = sa[c.observations + a]
        normals(key, U(update) * SAMPLES * U(c.actions) + U(a), U(c.actions), row, c.batch_size)
        for i in range(c.batch_size):
            row[i] = min(max(bound * tanh(out[a, i]) + clipped_noise(agent, row[i]), -bound), bound)


def _actor_actions(agent, out, key, update, sa):
    c = agent.common
    for a in range(c.actions):
        for i in range(c.batch_size):
            out[a, i] = tanh(out[a, i])
            sa[c.observations + a, i] = F4(agent.max_action) * out[a, i]


def _actor_gradient(agent, da, out):
    c = agent.common
    for a in range(c.actions):
        for i in range(c.batch_size):
            out[a, i] = F4(agent.max_action) * (ONE - out[a, i] * out[a, i]) * da[c.observations + a, i]


implement(TD3, target_actions=_target_actions, actor_actions=_actor_actions, actor_gradient=_actor_gradient)
implement(TD3, begin_episode=begin_episode, explore=_explore, test_action=_test_action, learn=learn)
