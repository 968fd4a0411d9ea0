"""Contrastive RL, compiled: an update of one member after the other, and their decisions. Twin of
``agents/goal/crl.py``, whose docstring has the losses.

An update takes the gradients of the three losses at the parameters before it, and then Adam's steps. At 2 x 256 units,
64 outputs and batch 256 its matrix products are 0.48 GFLOP, the floor: of phi, psi and the actor three passes each
(forward, by weights, by activations), two more of phi for the actor, the logits and their two gradients.

Axes: P members, B batch, L its padded number, S features of a state, G of a goal, A actions, R of a representation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.common.rng import normal
from envolve.agents.kernels.dense.activation import F4, NIL, ONE, ZERO
from envolve.agents.kernels.dense.adam import adam
from envolve.agents.kernels.dense.gemm import out_of_line
from envolve.agents.kernels.dense.mlp import aligned
from envolve.agents.kernels.goal.crl_draw import draw, make_noise, take
from envolve.agents.kernels.goal.crl_energy import (
    Contrast,
    add_representation_penalty,
    compare,
    compare_gradient,
    pairs,
)
from envolve.agents.kernels.goal.crl_losses import logit_gradient, measure, softplus
from envolve.agents.kernels.goal.crl_trunk import Trunk, backward, backward_input, forward

U = np.uint64
CLIP = F4(10.0)  # agents.common.normaliser.CLIP
LOWEST, RANGE, LEAST = -5.0, 7.0, 1e-3  # agents.goal.crl_networks: LOG_STD and its width, LEAST_STD
LOG_2, HALF_LOG_2PI = math.log(2), 0.5 * math.log(2 * math.pi)


class CRLPolicy(NamedTuple):
    """The actor, and room for one pass with L samples."""

    actor: Trunk
    S: int
    G: int
    A: int
    bounded: bool
    normalised: bool
    L: int
    x: np.ndarray  # [S + G, L]
    h: np.ndarray
    head: np.ndarray  # [2 A, L], mean of u and what its deviation comes from; then the gradient by them

    @classmethod
    def create(cls, actor: Trunk, S: int, G: int, A: int, bounded: bool, normalised: bool, batch: int) -> CRLPolicy:
        L = -(-batch // 16) * 16
        return cls(
            actor=actor,
            S=S,
            G=G,
            A=A,
            bounded=bounded,
            normalised=normalised,
            L=L,
            x=aligned((S + G, L)),
            h=actor.activations(L),
            head=aligned((2 * A, L)),
        )


class CRLLearner(NamedTuple):
    """What one thread needs to update a member."""

    policy: CRLPolicy
    phi: Trunk
    psi: Trunk
    c: Contrast
    entropy: bool  # in the actor's loss
    learns_scale: bool
    B: int
    goal_indices: np.ndarray  # int64 [G]
    sa: np.ndarray  # [S + A, L], what phi sees: first the remembered action, then the actor's
    goal: np.ndarray  # [G, L]
    noise: np.ndarray  # [A, L]
    other: np.ndarray  # [L], uniform: whether the actor gets another sample's goal
    log_prob: np.ndarray  # [L]
    like: np.ndarray  # [L]
    x: np.ndarray  # [R, L], as the next three: representations and gradients by them
    y: np.ndarray
    dx: np.ndarray
    dy: np.ndarray
    da: np.ndarray  # [A, L]
    h: np.ndarray  # of the other net that is passed beside the actor or phi
    dh: np.ndarray
    g: np.ndarray  # [D]
    alpha_g: np.ndarray  # [1]
    now: np.ndarray  # int64 [B], rows of the memory, as the next
    later: np.ndarray

    @classmethod
    def create(
        cls,
        policy: CRLPolicy,
        phi: Trunk,
        psi: Trunk,
        c: Contrast,
        entropy: bool,
        learns_scale: bool,
        goal_indices: np.ndarray,
        size: int,
    ) -> CRLLearner:
        L, B = policy.L, c.B
        x, y, dx, dy = (aligned((c.R, L)) for _ in range(4))
        rows = max(t.workspace(L).shape[1] for t in (policy.actor, phi, psi))
        return cls(
            policy=policy,
            phi=phi,
            psi=psi,
            c=c,
            entropy=entropy,
            learns_scale=learns_scale,
            B=B,
            goal_indices=goal_indices,
            sa=aligned((policy.S + policy.A, L)),
            goal=aligned((policy.G, L)),
            noise=aligned((policy.A, L)),
            other=aligned((L,)),
            log_prob=aligned((L,)),
            like=aligned((L,)),
            x=x,
            y=y,
            dx=dx,
            dy=dy,
            da=aligned((policy.A, L)),
            h=policy.actor.activations(L),
            dh=aligned((4, rows, L)),
            g=aligned((size,)),
            alpha_g=aligned((1,)),
            now=np.zeros(B, np.int64),
            later=np.zeros(B, np.int64),
        )


@njit(**JIT_UNCOUNTED)
def look(q, m, i, B):
    """The actor at the B samples in q.x, which are normalised first, into q.head."""
    out_of_line()
    if q.normalised:
        for s in range(q.S + q.G):
            mean, scale = m.mean[i, s], m.scale[i, s]
            for j in range(B):
                q.x[s, j] = min(max((q.x[s, j] - mean) * scale, -CLIP), CLIP)
    forward(q.actor, m.params[i], q.x, q.h, q.head, q.L)


@njit(**JIT_UNCOUNTED)
def deviation(raw, bounded):
    """Standard deviation of u, float64, of the actor's output: ``envolve.agents.goal.crl_networks.gaussian``."""
    return math.exp(LOWEST + 0.5 * RANGE * (math.tanh(raw) + 1.0)) if bounded else softplus(float(raw)) + LEAST


@njit(**JIT_UNCOUNTED)
def critic_gradient(a, m, i, measured, values):
    """Into g, of phi, psi and the factor; y stays psi of the goals. Returns the factor."""
    out_of_line()
    p, c, L, size = m.params[i], a.c, a.policy.L, a.g.shape[0]
    scale = p[size - 1] if a.learns_scale else ONE
    penalty, l2 = m.logsumexp_penalty[i], m.l2_penalty[i]
    forward(a.phi, p, a.sa, a.policy.h, a.x, L)
    forward(a.psi, p, a.goal, a.h, a.y, L)
    compare(c, a.x, a.y, scale)
    logit_gradient(c, penalty, measured)
    if measured:
        measure(c, penalty, values)
        squares = 0.0
        for r in range(c.R):
            for j in range(a.B):
                squares += a.x[r, j] * a.x[r, j] + a.y[r, j] * a.y[r, j]
        values[0] += l2 * squares / (c.R * a.B)
    by_scale = compare_gradient(c, scale, a.dx, a.dy)
    a.g[size - 1] = by_scale if a.learns_scale else ZERO
    if l2 != ZERO:
        add_representation_penalty(c, a.x, l2, a.dx)
        add_representation_penalty(c, a.y, l2, a.dy)
    backward(a.phi, p, a.sa, a.policy.h, a.dx, a.dh, L, a.g)
    backward(a.psi, p, a.goal, a.h, a.dy, a.dh, L, a.g)
    return scale


@njit(**JIT_UNCOUNTED)
def swap_goals(a, share):
    """For the actor: samples whose ``other`` is below ``share`` get the goal of the one before them, and its y."""
    out_of_line()
    for k in range(2):
        rows = a.goal if k == 0 else a.y
        for r in range(rows.shape[0]):
            last = rows[r, a.B - 1]
            for j in range(a.B - 1, -1, -1):
                if a.other[j] < share:
                    rows[r, j] = rows[r, j - 1] if j > 0 else last


@njit(**JIT_UNCOUNTED)
def actor_gradient(a, m, i, scale, values):
    """Into g, of the actor; values[0] <- its loss. Returns the mean of -log pi."""
    out_of_line()
    q, B = a.policy, a.B
    S, A, L, p, head, x = q.S, q.A, q.L, m.params[i], q.head, q.x
    if m.random_goals[i] > ZERO:
        swap_goals(a, m.random_goals[i])
    for s in range(S + q.G):
        for j in range(L):
            x[s, j] = a.sa[s, j] if s < S else a.goal[s - S, j]
    look(q, m, i, B)
    a.log_prob[:] = ZERO
    for s in range(A):
        for j in range(B):
            n, std = float(a.noise[s, j]), deviation(head[A + s, j], q.bounded)
            u = head[s, j] + std * n
            a.sa[S + s, j] = math.tanh(u)
            # log N(u; mean, std), and of tanh's slope log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))
            a.log_prob[j] -= 0.5 * n * n + HALF_LOG_2PI + math.log(std) + 2.0 * (LOG_2 - u - softplus(-2.0 * u))
    forward(a.phi, p, a.sa, a.h, a.x, L)
    pairs(a.c, a.x, a.y, scale, m.exploration_coef[i], a.like, a.dx)
    backward_input(a.phi, p, a.sa, a.h, a.dx, a.dh, L, a.da, S, A)
    alpha = math.exp(float(m.log_alpha[i, 0])) if a.entropy else 0.0
    paid, entropy, share = 0.0, 0.0, alpha / B
    for j in range(B):
        paid += a.like[j]
        entropy -= a.log_prob[j]
    for s in range(A):
        for j in range(B):
            raw, n, t = head[A + s, j], float(a.noise[s, j]), float(a.sa[S + s, j])
            std = deviation(raw, q.bounded)
            # dlog pi / du = 2 tanh(u); by the deviation that times n, and -1 / std
            du = a.da[s, j] * (1.0 - t * t) + share * 2.0 * t
            slope = std * 0.5 * RANGE * (1.0 - math.tanh(raw) ** 2) if q.bounded else 1.0 / (1.0 + math.exp(-raw))
            head[s, j] = du
            head[A + s, j] = (du * n - share / std) * slope
    for s in range(2 * A):
        head[s, B:] = ZERO
    backward(q.actor, p, x, q.h, head, a.dh, L, a.g)
    entropy /= B
    values[0] = -alpha * entropy - paid / B
    return entropy


@njit(**JIT_UNCOUNTED)
def train_on_batch(a, m, i, measured, values):
    """The update of member i by the batch that is in ``a``. values: float64 [9], as ``agents.goal.crl.METRICS``."""
    out_of_line()
    make_noise(a, m, i)
    scale = critic_gradient(a, m, i, measured, values[4:])
    values[0] = values[4]
    entropy = actor_gradient(a, m, i, scale, values[1:])
    alpha = math.exp(float(m.log_alpha[i, 0]))
    slope = alpha * (entropy + m.target_entropy[i] * a.policy.A)
    values[2], values[3] = slope, entropy
    a.alpha_g[0] = slope
    m.updates[i] += 1
    n = float(m.updates[i])
    rate, bound = 1.0 / (1.0 - 0.9**n), F4(1.0 / math.sqrt(1.0 - 0.999**n))
    p, first, second, border = m.params[i], m.m[i], m.v[i], np.int64(a.policy.actor.size)
    adam(p, first, second, a.g, NIL, border, F4(m.policy_lr[i] * rate), bound)
    adam(p, first, second, a.g, border, np.int64(p.shape[0]), F4(m.critic_lr[i] * rate), bound)
    adam(m.log_alpha[i], m.alpha_m[i], m.alpha_v[i], a.alpha_g, NIL, np.int64(1), F4(m.alpha_lr[i] * rate), bound)
    values[4] = math.exp(float(m.log_alpha[i, 0]))


@njit(**JIT_UNCOUNTED)
def learn(a, m, memory, first, last, measured, values):
    """``CRL.learn`` of each member from first to last - 1; values: float64 [P, 9]."""
    for i in range(first, last):
        draw(a, m, memory, i)
        train_on_batch(a, m, i, measured, values[i])


@njit(**JIT_UNCOUNTED)
def learn_batch(a, m, state, action, goal, first, last, measured, values):
    """``CRL.learn_batch``; state [P, B, S], action [P, B, A], goal [P, B, G]."""
    for i in range(first, last):
        take(a, state[i], action[i], goal[i])
        train_on_batch(a, m, i, measured, values[i])


@njit(**JIT_UNCOUNTED)
def decide(q, m, features, goal, decision, explores, first, last, action):
    """action[P, N, A] of members first .. last - 1 for features [P, N, S] and goal [P, N, G]: ``CRL.act`` of decision
    number ``decision`` if it ``explores``, else ``CRL.greedy``."""
    N, S, G, A = features.shape[1], q.S, q.G, q.A
    for i in range(first, last):
        for j in range(N):
            for s in range(S):
                q.x[s, j] = features[i, j, s]
            for s in range(G):
                q.x[S + s, j] = goal[i, j, s]
        look(q, m, i, N)
        counter = U(decision * N * A)
        for j in range(N):
            for s in range(A):
                u = float(q.head[s, j])
                if explores:
                    noise = normal(m.explore_key[i], counter + U(j * A + s))
                    u += deviation(q.head[A + s, j], q.bounded) * noise
                action[i, j, s] = math.tanh(u)
