"""What a compiled PPO agent learns from a rollout: returns, and Adam on epochs of minibatches. Twin of
``agents/ppo/update.py`` and of the gradient in ``agents/ppo/policy.py``."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.dense.activation import F4, ONE, UNIT, ZERO
from envolve.agents.kernels.dense.adam import adam, norm_squared
from envolve.agents.kernels.dense.mlp import Net, activations, aligned, backward, forward, workspace
from envolve.agents.kernels.off_policy.training import U
from envolve.agents.kernels.ppo.policy import HALF_LOG_2PI, STD_MIN, tanh
from envolve.agents.kernels.ppo.rollout import shuffle
from envolve.agents.ppo.rate import RATE_MAX, RATE_MIN, RATE_STEP

BLOCK = 256  # most columns that are evaluated at once, so that their activations stay in the cache
RETURN_EPSILON, ADVANTAGE_EPSILON = 1e-5, 1e-8
TWO = F4(2)


class Block(NamedTuple):
    """W columns, evaluated at once."""

    x: np.ndarray  # float32 [F, W]
    q: np.ndarray  # [A, W], the actor's output; dq: derivative of the loss
    dq: np.ndarray
    v: np.ndarray  # [1, W], the critic's; dv
    dv: np.ndarray
    h_actor: np.ndarray
    h_critic: np.ndarray
    dh: np.ndarray

    @classmethod
    def create(cls, W: int, F: int, A: int, H: int, layers: int, act: int) -> Block:
        x, q, dq, v, dv = (aligned((rows, W)) for rows in (F, A, A, 1, 1))
        return cls(x, q, dq, v, dv, activations(H, layers, W, act), activations(H, layers, W, act), workspace(H, W))


@njit(**JIT_UNCOUNTED)
def outputs(policy, block):
    """block.q <- the actor's outputs at the states block.x."""
    F, W = block.x.shape
    net = Net(F, policy.hidden, policy.layers, policy.outputs, policy.act)
    forward(policy.p, policy.std, net, block.x, block.h_actor, block.q, W)


@njit(**JIT_UNCOUNTED)
def critic(policy, block, offset):
    """block.v <- the values of the states block.x."""
    F, W = block.x.shape
    net = Net(F, policy.hidden, policy.layers, UNIT, policy.act)
    forward(policy.p, offset, net, block.x, block.h_critic, block.v, W)


@njit(**JIT_UNCOUNTED)
def values(policy, block, offset, obs, count, out):
    """out[:count] <- the values of the states obs[:, :count]."""
    W = block.x.shape[1]
    for first in range(0, count, W):
        B = min(W, count - first)
        for f in range(obs.shape[0]):
            for i in range(B):
                block.x[f, i] = obs[f, first + i]
        critic(policy, block, offset)
        for i in range(B):
            out[first + i] = block.v[0, i]


@njit(**JIT_UNCOUNTED)
def mean_std(x, count):
    """With Bessel's correction, in float64."""
    total, squares = 0.0, 0.0
    for i in range(count):
        total += x[i]
    mean = total / count
    for i in range(count):
        squares += (x[i] - mean) ** 2
    return mean, math.sqrt(squares / (count - 1))


@njit(**JIT_UNCOUNTED)
def prepare(policy, rollout, block, offset, scale, c, ends):
    """``value`` and ``returns`` of the rollout: see agents/ppo/returns.py."""
    N, R = c.num_envs, c.num_envs * c.rollout_steps
    reward, value, ahead, returns = rollout.reward, rollout.value, rollout.ahead, rollout.returns
    values(policy, block, offset, rollout.last, ends, returns)
    for j in range(ends):
        v = returns[j]
        if c.monte_carlo:
            v = v * F4(scale[1]) + F4(scale[0]) if c.bootstrap_time_limit else ZERO
        ahead[rollout.at[j]] = v
    values(policy, block, offset, rollout.obs, R, value)
    gamma = F4(c.gamma)
    lam = ONE if c.monte_carlo else F4(c.gae_lambda)
    for i in range(R - 1, -1, -1):
        g = reward[i]
        if not rollout.terminated[i]:
            if rollout.over[i] or i >= R - N:
                g += gamma * ahead[i]
            else:
                g += gamma * (ONE - lam) * value[i + N] + gamma * lam * returns[i + N]
        returns[i] = g
    if c.monte_carlo:
        mean, std = mean_std(returns, R)
        scale[0], scale[1] = mean, std
        for i in range(R):
            returns[i] = (returns[i] - F4(mean)) / (F4(std) + F4(RETURN_EPSILON))


@njit(**JIT_UNCOUNTED)
def gather(rollout, block, first, B):
    """block.x[:, :B] <- the states of transitions order[first : first + B]."""
    for f in range(block.x.shape[0]):
        for i in range(B):
            block.x[f, i] = rollout.obs[f, rollout.order[first + i]]


@njit(**JIT_UNCOUNTED)
def advantages(policy, rollout, block, offset, advantage, c, first, B):
    """advantage[:B] of the minibatch order[first : first + B]; left to ``derivatives`` where it is not normalised and
    the critic of the moment decides."""
    if c.monte_carlo:
        if not c.norm_advantage:
            return
        W = block.x.shape[1]
        for start in range(0, B, W):
            count = min(W, B - start)
            gather(rollout, block, first + start, count)
            critic(policy, block, offset)
            for i in range(count):
                advantage[start + i] = rollout.returns[rollout.order[first + start + i]] - block.v[0, i]
    else:
        for i in range(B):
            j = rollout.order[first + i]
            advantage[i] = rollout.returns[j] - rollout.value[j]
    if c.norm_advantage:
        mean, std = mean_std(advantage, B)
        for i in range(B):
            advantage[i] = (advantage[i] - F4(mean)) / (F4(std) + F4(ADVANTAGE_EPSILON))


@njit(**JIT_UNCOUNTED)
def derivatives(policy, rollout, block, advantage, g, c, first, count, B):
    """Derivatives of the loss (``gradient`` of ``agents/ppo/policy.py``) by the outputs of actor and critic, and, added
    to g, by the standard deviations; for the samples order[first : first + count] of a minibatch of B, which lie in
    block.x -> sum of rho - 1 - log rho, if c asks for it."""
    q, dq, p, moved = block.q, block.dq, policy.p, 0.0
    A, eps = policy.outputs, F4(c.eps_clip)
    share, top = ONE / F4(B), F4(policy.max_action)
    value_weight, entropy_weight = TWO * F4(c.vf_coef) * share, F4(c.ent_coef) * share
    for i in range(count):
        j = rollout.order[first + i]
        v, target = block.v[0, i], rollout.returns[j]
        error = v - target
        adv = -error if c.monte_carlo and not c.norm_advantage else advantage[i]
        dv = error * value_weight
        if c.clip_value_loss:
            change = v - rollout.value[j]
            clipped = rollout.value[j] + min(max(change, -eps), eps) - target
            if abs(change) > eps and clipped * clipped > error * error:
                dv = ZERO
        block.dv[0, i] = dv

        total, logp, log_total, taken = ZERO, ZERO, ZERO, 0
        if policy.std == 0:
            highest = q[0, i]
            for a in range(1, A):
                highest = max(highest, q[a, i])
            for a in range(A):
                e = math.exp(q[a, i] - highest)
                dq[a, i] = e
                total += e
            log_total = highest + math.log(total)
            taken = int(rollout.action[0, j])
            logp = q[taken, i] - log_total
        else:
            for a in range(A):
                std = max(p[a], STD_MIN)
                q[a, i] = tanh(q[a, i]) if policy.squash else q[a, i] / top  # needed once more below
                z = (rollout.action[a, j] - top * q[a, i]) / std
                dq[a, i] = z
                logp -= F4(0.5) * z * z + math.log(std) + HALF_LOG_2PI
        if c.update_kl > 0:
            log_rho = np.float64(logp - rollout.logp[j])
            moved += math.expm1(log_rho) - log_rho
        rho = math.exp(logp - rollout.logp[j])
        flat = (rho > ONE + eps and adv > ZERO) or (rho < ONE - eps and adv < ZERO)
        dlogp = ZERO if flat else -rho * adv * share
        if policy.std == 0:
            entropy = ZERO
            for a in range(A):
                dq[a, i] /= total  # the probability of a
                entropy -= dq[a, i] * (q[a, i] - log_total)
            for a in range(A):
                prob = dq[a, i]
                hit = ONE if a == taken else ZERO
                dq[a, i] = (hit - prob) * dlogp + prob * (q[a, i] - log_total + entropy) * entropy_weight
        else:
            for a in range(A):
                std, z, squashed = max(p[a], STD_MIN), dq[a, i], q[a, i]
                slope = top * (ONE - squashed * squashed) if policy.squash else ONE
                dq[a, i] = dlogp * z * slope / std
                if p[a] >= STD_MIN:
                    g[a] += (z * z - ONE) * dlogp / std
    for i in range(count, block.x.shape[1]):
        block.dv[0, i] = ZERO
        for a in range(A):
            dq[a, i] = ZERO
    return moved


@njit(**JIT_UNCOUNTED)
def differentiate(policy, block, offset, g):
    """g <- what the derivatives in ``block`` make of the parameters of actor and critic."""
    F, W = block.x.shape
    H, layers, act = policy.hidden, policy.layers, policy.act
    net, value_net = Net(F, H, layers, policy.outputs, act), Net(F, H, layers, UNIT, act)
    backward(policy.p, policy.std, net, block.x, block.h_actor, block.dq, block.dh, W, g)
    backward(policy.p, offset, value_net, block.x, block.h_critic, block.dv, block.dh, W, g)


@njit(**JIT_UNCOUNTED)
def adapted(rate, divergence, desired):
    """See agents/ppo/rate.py."""
    if divergence > 2 * desired:
        return min(max(rate / RATE_STEP, RATE_MIN), RATE_MAX)
    if divergence < desired / 2:
        return min(max(rate * RATE_STEP, RATE_MIN), RATE_MAX)
    return rate


@njit(**JIT_UNCOUNTED)
def update(agent, c, first, B, number, rate):
    """Update ``number`` (from 1) on the minibatch order[first : first + B]; rate: the learning rate -> the rate,
    adapted if c asks for it."""
    policy, rollout, block, g = agent.policy, agent.rollout, agent.block, agent.g
    p, D, moved = policy.p, policy.p.shape[0], 0.0
    F, W = block.x.shape
    advantages(policy, rollout, block, agent.critic, agent.advantage, c, first, B)
    for a in range(policy.std):
        g[a] = -F4(c.ent_coef) / p[a] if p[a] >= STD_MIN else ZERO
    for start in range(0, B, W):
        count = min(W, B - start)
        gather(rollout, block, first + start, count)
        outputs(policy, block)
        critic(policy, block, agent.critic)
        moved += derivatives(policy, rollout, block, agent.advantage[start:], g, c, first + start, count, B)
        if start == 0:
            differentiate(policy, block, agent.critic, g)
        else:
            differentiate(policy, block, agent.critic, agent.part)
            for i in range(policy.std, D):
                g[i] += agent.part[i]
    if c.update_kl > 0:
        rate = adapted(rate, moved / B, c.update_kl)
    scale = ONE
    if c.max_grad_norm > 0:
        scale = F4(min(1.0, c.max_grad_norm / (math.sqrt(norm_squared(g, 0, D)) + 1e-6)))
    c1, c2 = 1.0 - 0.9**number, 1.0 - 0.999**number
    adam(p, agent.m, agent.v, g, 0, D, F4(rate / c1), F4(1.0 / math.sqrt(c2)), F4(c.adam_eps), scale)
    return rate


@njit(**JIT_UNCOUNTED)
def learn(agent, c, ends, key, epoch, updates, rate):
    """All epochs on one rollout -> updates so far, the learning rate. epoch, updates: how many there were before."""
    R = c.num_envs * c.rollout_steps
    B = R // c.minibatches
    prepare(agent.policy, agent.rollout, agent.block, agent.critic, agent.scale, c, ends)
    for i in range(R):
        agent.rollout.order[i] = U(i)
    for k in range(c.ppo_epochs):
        if c.minibatches > 1:
            shuffle(agent.rollout, key, (epoch + k) * R)
        for b in range(c.minibatches):
            updates += 1
            rate = update(agent, c, b * B, B, updates, rate)
    return updates, rate
