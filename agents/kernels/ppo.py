"""numba twin of ``agents/ppo.py``: a member's whole inner loop (rollout, returns, epochs of minibatches, tests) as one
function without the GIL. Equality with the PyTorch path is tested in tests/agents/test_ppo.py.

Cost per environment step with CleanRL's settings on CartPole (2 x 64 tanh, 4 epochs): 214,000 FLOP in the updates and
18,000 in the rollout, and 1,280 tanh: some 2.8 us on a core that does 95 GFLOP/s and a tanh in 0.25 ns.

Random numbers are counted: decision d of environment n draws the EXPLORE counters (d N + n) A + a and, if its episode
ends there, begins the next by reset number (d + 1) N + n; epoch k shuffles by the REPLAY counters k T N + i.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from agents.kernels import JIT_UNCOUNTED, worlds
from agents.kernels.dispatch import implement
from agents.kernels.gemm import product
from agents.kernels.mlp import (
    F4,
    IDENTITY,
    NIL,
    NONE,
    ONE,
    PRELU,
    UNIT,
    ZERO,
    activate,
    activations,
    adam,
    aligned,
    backward,
    forward,
    norm_squared,
    size,
    workspace,
)
from agents.kernels.off_policy import EXPLORE, FINAL_TEST, REPLAY, RESET, TEST, U, early_out, finite, padded, test
from agents.kernels.rng import bits, fold, gumbel, normal
from agents.kernels.tasks import STATE_SIZE
from agents.result import AGENT_DIVERGED, OK, WORLD_DIVERGED
from envs.networks import ACTIVATIONS, MLPShape
from envs.task import Task

BLOCK = 256  # most columns that are evaluated at once, so that their activations stay in the cache
STD_MIN, HALF_LOG_2PI = F4(1e-3), F4(0.5 * math.log(2 * math.pi))
RETURN_EPSILON, ADVANTAGE_EPSILON = 1e-5, 1e-8
TWO = F4(2)


class Settings(NamedTuple):
    """What one member is trained with; names as in ``PPOSection``."""

    train_episodes: int
    init_episodes: int
    train_steps: int  # 0: no limit
    max_steps: int
    same_action_num: int
    early_out_num: int
    early_out_min_steps: int
    early_out_virtual_diff: float
    solved_reward: float
    test_episodes: int
    test_each: bool
    bootstrap_time_limit: bool
    num_envs: int
    rollout_steps: int  # T, never 0 here
    ppo_epochs: int
    minibatches: int
    monte_carlo: bool
    lr: float
    gamma: float
    gae_lambda: float
    eps_clip: float
    vf_coef: float
    ent_coef: float
    max_grad_norm: float
    norm_advantage: bool
    clip_value_loss: bool
    anneal_lr: bool
    adam_eps: float


class Policy(NamedTuple):
    """What it takes to act."""

    hidden: int
    layers: int
    act: int
    std: int  # standard deviations in front of the nets: the size of a continuous action, 0 for discrete ones
    outputs: int  # A
    max_action: float
    test_noise: bool
    p: np.ndarray  # float32 [D]: standard deviations, actor, critic
    noise: np.ndarray  # float32 [A]
    out: np.ndarray  # float32 [N A], the actor's outputs
    drawn: np.ndarray  # float32 [A], continuous action before it is clipped
    sent: np.ndarray  # float32 [A]
    h: np.ndarray  # float32 [N hidden]
    h2: np.ndarray

    @classmethod
    def create(cls, task: Task, actor: MLPShape, num_envs: int, test_noise: bool, p: np.ndarray) -> Policy:
        A, H, layers, act = actor.outputs, actor.hidden, max(1, actor.layers), ACTIVATIONS.index(actor.activation)
        noise, out, drawn, sent = (aligned((n,)) for n in (A, num_envs * A, A, A))
        h, h2 = aligned((num_envs * H,)), aligned((num_envs * H,))
        top = float(task.max_action)
        return cls(H, layers, act, task.action_size, A, top, test_noise, p, noise, out, drawn, sent, h, h2)


class Environments(NamedTuple):
    """N of them."""

    s: np.ndarray  # float64 [N, S], states of the real task
    obs: np.ndarray  # float32 [N F]
    phi: np.ndarray  # float32 [N, 1], see worlds.World
    t: np.ndarray  # int64 [N], steps in their episodes
    total: np.ndarray  # float64 [N], returns so far
    ended: np.ndarray  # bool [N], by the last decision

    @classmethod
    def create(cls, N: int, F: int) -> Environments:
        return cls(
            np.zeros((N, STATE_SIZE)), aligned((N * F,)), aligned((N, 1)), np.zeros(N, np.int64), np.zeros(N),
            np.zeros(N, np.bool_),
        )  # fmt: skip


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
            aligned((F, R)), aligned((F, R)), np.zeros(R, np.int64), aligned((actions, R)),
            logp, reward, value, ahead, returns,
            np.zeros(R, np.bool_), np.zeros(R, np.bool_), np.zeros(R, np.uint64), np.zeros(R, np.uint64),
            np.zeros(1 + (1 << (R - 1).bit_length()), np.int64),
        )  # fmt: skip


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


class PPO(NamedTuple):
    """One member's agent, environments and memory; in parts, because a call hands over every array of a tuple."""

    policy: Policy
    envs: Environments
    rollout: Rollout
    block: Block
    critic: int  # offset of the critic in p
    m: np.ndarray  # float32 [D], Adam's moments
    v: np.ndarray
    g: np.ndarray  # gradient; part: that of one block
    part: np.ndarray
    advantage: np.ndarray  # float32 [B], of a minibatch
    scale: np.ndarray  # float64 [2], mean and std of the Monte Carlo returns learned last

    @classmethod
    def create(cls, task: Task, actor: MLPShape, c: Settings, test_noise: bool, p: np.ndarray) -> PPO:
        """p: float32 [D], trained in place."""
        F, A, N, R = task.observation_size, actor.outputs, c.num_envs, c.num_envs * c.rollout_steps
        B = R // c.minibatches
        W = padded(-(-B // -(-B // BLOCK)))  # the fewest blocks, of equal width
        policy = Policy.create(task, actor, N, test_noise, p)
        m, v, g, part = (aligned((len(p),)) for _ in range(4))
        return cls(
            policy, Environments.create(N, F), Rollout.create(R, F, max(1, task.action_size)),
            Block.create(W, F, A, policy.hidden, policy.layers, policy.act), task.action_size + actor.size,
            m, v, g, part, aligned((B,)), np.array([0.0, 1.0]),
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- decisions


@njit(**JIT_UNCOUNTED)
def tanh(z):
    """Of few numbers, exactly: not worth the rational approximation."""
    return F4(math.tanh(z))


@njit(**JIT_UNCOUNTED)
def layer(p, o, K, M, x, out, rows, act, slope):
    """out[n, m] = act(b[m] + sum_k W[k, m] x[n, k]): a sample per row, because few samples would leave the lanes of a
    vector empty. x, out: flat."""
    product(x, NIL, K, UNIT, NONE, p[o:], M, out, NIL, M, K, rows, M)
    for n in range(rows):
        for m in range(M):
            out[n * M + m] += p[o + K * M + m]
    activate(out, rows * M, act, slope)


@njit(**JIT_UNCOUNTED)
def actor(policy, obs, rows):
    """policy.out[:rows A] <- the actor's outputs for obs[:rows F]."""
    p, o, H, A = policy.p, policy.std, policy.hidden, policy.outputs
    F = obs.shape[0] // rows
    slope = p[o + size(F, H, policy.layers, A, policy.act) - 1] if policy.act == PRELU else ZERO
    layer(p, o, F, H, obs, policy.h, rows, policy.act, slope)
    o += F * H + H
    h, h2 = policy.h, policy.h2
    for _ in range(1, policy.layers):
        layer(p, o, H, H, h, h2, rows, policy.act, slope)
        h, h2 = h2, h
        o += H * H + H
    layer(p, o, H, A, h, policy.out, rows, IDENTITY, slope)


@njit(**JIT_UNCOUNTED)
def draw_noise(policy, key, number):
    A = policy.outputs
    for a in range(A):
        counter = U(number) * U(A) + U(a)
        policy.noise[a] = gumbel(key, counter) if policy.std == 0 else normal(key, counter)


@njit(**JIT_UNCOUNTED)
def choose(policy, n):
    """Row n of the actor's outputs, and noise -> index of a discrete action; else 0, and ``drawn`` holds the action,
    ``sent`` what is left of it within the task's limits."""
    A, index = policy.outputs, 0
    out = policy.out[n * A : (n + 1) * A]
    if policy.std == 0:
        for a in range(1, A):
            if out[a] + policy.noise[a] > out[index] + policy.noise[index]:
                index = a
    else:
        top = F4(policy.max_action)
        for a in range(A):
            policy.drawn[a] = top * tanh(out[a]) + max(policy.p[a], STD_MIN) * policy.noise[a]
            policy.sent[a] = min(max(policy.drawn[a], -top), top)
    return index


def test_action(policy, key, step, obs, action):
    """See off_policy.test_action."""
    if policy.test_noise:
        draw_noise(policy, key, step)
    else:
        policy.noise[:] = ZERO
    actor(policy, obs, np.int64(1))
    index = choose(policy, np.int64(0))
    for a in range(policy.std):
        action[a] = policy.sent[a]
    return index


implement(Policy, test_action=test_action)


@njit(**JIT_UNCOUNTED)
def log_prob(policy, n, index):
    """Of the action that ``choose`` returned."""
    A = policy.outputs
    out = policy.out[n * A : (n + 1) * A]
    if policy.std == 0:
        highest, total = out[0], ZERO
        for a in range(1, A):
            highest = max(highest, out[a])
        for a in range(A):
            total += math.exp(out[a] - highest)
        return out[index] - highest - math.log(total)
    total = ZERO
    for a in range(A):
        std = max(policy.p[a], STD_MIN)
        z = (policy.drawn[a] - F4(policy.max_action) * tanh(out[a])) / std
        total -= F4(0.5) * z * z + math.log(std) + HALF_LOG_2PI
    return total


@njit(**JIT_UNCOUNTED)
def environment(envs, w, n):
    """World ``w`` with the state of environment n."""
    F = w.obs.shape[0]
    return worlds.World(
        w.kind, w.task, w.num_actions, w.rn_type, w.hidden, w.layers, w.act, w.raw_done, w.gamma, w.params,
        envs.s[n], envs.obs[n * F : (n + 1) * F], w.inputs, envs.phi[n], w.out, w.h, w.h2,
    )  # fmt: skip


@njit(**JIT_UNCOUNTED)
def decide(policy, envs, rollout, w, c, key, decision, t, ends):
    """Decision t of the rollout in every environment -> steps taken, states in ``last``, whether the world failed.

    ends: how many states ``last`` held before.
    """
    N, F, steps, failed = c.num_envs, w.obs.shape[0], 0, False
    actor(policy, envs.obs, N)
    for n in range(N):
        i = t * N + n
        world = environment(envs, w, n)
        for f in range(F):
            rollout.obs[f, i] = world.obs[f]
        draw_noise(policy, key, decision * N + n)
        index = choose(policy, n)
        rollout.logp[i] = log_prob(policy, n, index)
        rollout.action[0, i] = F4(index)
        for a in range(policy.std):
            rollout.action[a, i] = policy.drawn[a]
        left = c.max_steps - envs.t[n]
        reward, _, terminated, lost, taken = worlds.repeat(world, index, policy.sent, c.same_action_num, left)
        envs.t[n] += taken
        envs.total[n] += reward
        over = terminated or lost or envs.t[n] >= c.max_steps
        envs.ended[n] = over
        rollout.reward[i] = reward
        rollout.over[i] = over
        rollout.terminated[i] = terminated or (over and not c.bootstrap_time_limit)
        steps += taken
        failed = failed or lost
        if not rollout.terminated[i] and (over or t == c.rollout_steps - 1):
            for f in range(F):
                rollout.last[f, ends] = world.obs[f]
            rollout.at[ends] = i
            ends += 1
    return steps, ends, failed


# ----------------------------------------------------------------------------------------------------------- learning


@njit(**JIT_UNCOUNTED)
def critic(policy, block, offset):
    """block.v <- the values of the states block.x."""
    F, W = block.x.shape
    forward(policy.p, offset, F, policy.hidden, policy.layers, 1, block.x, block.h_critic, block.v, W, policy.act)


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
    """``value`` and ``returns`` of the rollout: see agents/returns.py."""
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
    """Of the loss (agents/ppo_policy.gradient) by the outputs of actor and critic, and, added to g, by the standard
    deviations; for the samples order[first : first + count] of a minibatch of B, which lie in block.x."""
    q, dq, p = block.q, block.dq, policy.p
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
                z = (rollout.action[a, j] - top * tanh(q[a, i])) / std
                dq[a, i] = z
                logp -= F4(0.5) * z * z + math.log(std) + HALF_LOG_2PI
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
                std, z, squashed = max(p[a], STD_MIN), dq[a, i], tanh(q[a, i])
                dq[a, i] = dlogp * z * top * (ONE - squashed * squashed) / std
                if p[a] >= STD_MIN:
                    g[a] += (z * z - ONE) * dlogp / std
    for i in range(count, block.x.shape[1]):
        block.dv[0, i] = ZERO
        for a in range(A):
            dq[a, i] = ZERO


@njit(**JIT_UNCOUNTED)
def differentiate(policy, block, offset, g):
    """g <- what the derivatives in ``block`` make of the parameters of actor and critic."""
    F, W = block.x.shape
    p, H, layers, act, A = policy.p, policy.hidden, policy.layers, policy.act, policy.outputs
    backward(p, policy.std, F, H, layers, A, block.x, block.h_actor, block.dq, block.dh, W, g, act)
    backward(p, offset, F, H, layers, 1, block.x, block.h_critic, block.dv, block.dh, W, g, act)


@njit(**JIT_UNCOUNTED)
def update(agent, c, first, B, number, rate):
    """Update ``number`` (from 1) on the minibatch order[first : first + B]; rate: the learning rate."""
    policy, rollout, block, g = agent.policy, agent.rollout, agent.block, agent.g
    p, D = policy.p, policy.p.shape[0]
    F, W = block.x.shape
    advantages(policy, rollout, block, agent.critic, agent.advantage, c, first, B)
    for a in range(policy.std):
        g[a] = -F4(c.ent_coef) / p[a] if p[a] >= STD_MIN else ZERO
    for start in range(0, B, W):
        count = min(W, B - start)
        gather(rollout, block, first + start, count)
        forward(
            p, policy.std, F, policy.hidden, policy.layers, policy.outputs, block.x, block.h_actor, block.q, W,
            policy.act,
        )  # fmt: skip
        critic(policy, block, agent.critic)
        derivatives(policy, rollout, block, agent.advantage[start:], g, c, first + start, count, B)
        if start == 0:
            differentiate(policy, block, agent.critic, g)
        else:
            differentiate(policy, block, agent.critic, agent.part)
            for i in range(policy.std, D):
                g[i] += agent.part[i]
    scale = ONE
    if c.max_grad_norm > 0:
        scale = F4(min(1.0, c.max_grad_norm / (math.sqrt(norm_squared(g, 0, D)) + 1e-6)))
    c1, c2 = 1.0 - 0.9**number, 1.0 - 0.999**number
    adam(p, agent.m, agent.v, g, 0, D, F4(rate / c1), F4(1.0 / math.sqrt(c2)), F4(c.adam_eps), scale)


@njit(**JIT_UNCOUNTED)
def learn(agent, c, ends, key, epoch, updates, rate):
    """All epochs on one rollout -> updates so far. epoch, updates: how many there were before."""
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
            update(agent, c, b * B, B, updates, rate)
    return updates


# ----------------------------------------------------------------------------------------------------------- the loop


@njit(**JIT_UNCOUNTED)
def train(agent, world, task, c, key, test_returns, episode_return, episode_length, counts):
    """Train one member and test it.

    world, task: ``worlds.World``, what it trains in and what it is tested on; c: ``Settings``; test_returns: float64
    [T]; episode_return: float32 [E]; episode_length: int32 [E]; counts: int64 [5] <- train steps, updates, episodes,
    real steps, status (agents/result.py).
    """
    N, policy, envs = c.num_envs, agent.policy, agent.envs
    explore_key, shuffle_key = fold(key, EXPLORE), fold(key, REPLAY)
    reset_key, test_key = fold(key, RESET), fold(key, TEST)
    n, decision, epoch, updates, e, real_steps, status = 0, 0, 0, np.int64(0), 0, 0, OK
    for i in range(N):
        worlds.reset(environment(envs, world, i), reset_key, i)
    stop = False
    while not stop:
        ends, before = np.int64(0), n
        for t in range(c.rollout_steps):
            steps, ends, failed = decide(policy, envs, agent.rollout, world, c, explore_key, decision, t, ends)
            n += steps
            decision += 1
            if failed:
                status, stop = WORLD_DIVERGED, True
                break
            for i in range(N):
                if not envs.ended[i]:
                    continue
                episode_length[e] = envs.t[i]
                total = envs.total[i]
                if c.test_each:
                    real_steps += test(policy, task, c, test_key, e * c.test_episodes, policy.sent, test_returns)
                    total = test_returns.mean()
                episode_return[e] = total
                solved = e >= c.init_episodes and early_out(episode_return, e, n, world.kind, c)
                e += 1
                if solved or e == c.train_episodes:
                    stop = True
                    break
                worlds.reset(environment(envs, world, i), reset_key, decision * N + i)
                envs.t[i], envs.total[i] = 0, 0.0
            if stop:
                break
        if stop:
            break
        rate = c.lr * (1.0 - before / c.train_steps) if c.anneal_lr else c.lr
        updates = learn(agent, c, ends, shuffle_key, epoch, updates, rate)
        epoch += c.ppo_epochs
        if not finite(policy.p):
            status, stop = AGENT_DIVERGED, True
        stop = stop or (c.train_steps > 0 and n >= c.train_steps)

    if world.kind != worlds.SE:
        real_steps += n
    if status == OK:
        real_steps += test(policy, task, c, fold(key, FINAL_TEST), np.int64(0), policy.sent, test_returns)
    else:
        test_returns[:] = np.nan
    counts[0], counts[1], counts[2], counts[3], counts[4] = n, updates, e, real_steps, status
