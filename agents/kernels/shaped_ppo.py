"""numba twin of ``agents/shaped_ppo_torch.py``: an agent acts, remembers and learns in calls of its own without the
GIL, so its numbers do not depend on the population that it is in, nor on the number of threads.

The policy is ``ppo_policy.py``, the updates are ``ppo_update.py``; here are the normalisers around them, and the calls.

Floor per environment step for 48 observations, 12 actions and 2 x 128 tanh, 5 epochs: 47,000 weights, of which an
epoch makes 255,000 FLOP and the rollout and the values 139,000; with 3,600 tanh, that is some 7 us on a core that does
220 GFLOP/s.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Callable, Collection, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from agents.kernels import JIT_INNER, JIT_UNCOUNTED, ppo
from agents.kernels.activation import F4, NIL, ZERO
from agents.kernels.ahead import compiled_ahead
from agents.kernels.mlp import aligned, forward
from agents.kernels.members import settings
from agents.kernels.off_policy import EXPLORE, REPLAY, finite, padded
from agents.kernels.ppo_policy import HALF_LOG_2PI, STD_MIN, actor, choose, draw_noise, log_prob, tanh
from agents.kernels.ppo_update import Block, gather, learn
from agents.kernels.rng import fold
from agents.normaliser import CLIP, EPSILON
from agents.sections import PPOSection
from agents.shaped_ppo_policy import STD_FLOOR, adapted, create, spaces


class Moments(NamedTuple):
    """See ``agents.normaliser.Moments``."""

    on: bool
    count: np.ndarray  # float64 [2]: samples merged so far; those added since
    mean: np.ndarray  # float64 [K], as the next three
    squares: np.ndarray
    first: np.ndarray
    second: np.ndarray
    shift: np.ndarray  # float32 [K], mean and 1 / deviation
    scale: np.ndarray

    @classmethod
    def create(cls, on: bool, K: int) -> Moments:
        return cls(on, np.zeros(2), *np.zeros((4, K)), np.zeros(K, np.float32), np.ones(K, np.float32))


class Memory(NamedTuple):
    """What an agent needs besides ``ppo.PPO``."""

    x: np.ndarray  # float32 [N F], normalised observations
    seen: Moments
    paid: Moments
    discounted: np.ndarray  # float64 [N], returns, of ``paid``


@njit(**JIT_INNER)
def add(moments, k, value):
    d = value - moments.mean[k]
    moments.first[k] += d
    moments.second[k] += d * d


@njit(**JIT_INNER)
def merge(moments):
    count = moments.count
    count[0] += count[1]
    count[1] = 0.0
    for k in range(moments.mean.shape[0]):
        change = moments.first[k] / count[0]
        moments.mean[k] += change
        moments.squares[k] += max(moments.second[k] - moments.first[k] * change, 0.0)
        moments.first[k] = moments.second[k] = 0.0
        moments.shift[k] = F4(moments.mean[k])
        moments.scale[k] = F4(1.0 / math.sqrt(moments.squares[k] / count[0] + EPSILON))


@njit(**JIT_INNER)
def normalised(value, moments, k):
    if not moments.on:
        return value
    return min(max((value - moments.shift[k]) * moments.scale[k], F4(-CLIP)), F4(CLIP))


@njit(**JIT_UNCOUNTED)
def act(policy, rollout, memory, obs, action, i, key, decision, t):
    """Decision t of the rollout, number ``decision`` of the training: obs[i] -> action[i], in all N environments."""
    x, seen, N, F = memory.x, memory.seen, obs.shape[1], rollout.obs.shape[0]
    for n in range(N):
        for f in range(F):
            x[n * F + f] = normalised(obs[i, n, f], seen, f)
    if seen.on:
        for n in range(N):
            for f in range(F):
                add(seen, f, obs[i, n, f])
        seen.count[1] += N
    for f in range(F):
        for n in range(N):
            rollout.obs[f, t * N + n] = x[n * F + f]
    actor(policy, x, N)
    for n in range(N):
        draw_noise(policy, key, decision * N + n)
        choose(policy, n)
        rollout.logp[t * N + n] = log_prob(policy, n, NIL)
        for a in range(policy.outputs):
            rollout.action[a, t * N + n] = policy.drawn[a]
            action[i, n, a] = policy.sent[a]


@njit(**JIT_UNCOUNTED)
def mean_action(policy, memory, obs, action, i):
    """obs[i] -> action[i], in any number of environments."""
    x, seen, A = memory.x, memory.seen, policy.outputs
    F, most = seen.mean.shape[0], policy.out.shape[0] // A
    for first in range(0, obs.shape[1], most):
        rows = min(most, obs.shape[1] - first)
        for n in range(rows):
            for f in range(F):
                x[n * F + f] = normalised(obs[i, first + n, f], seen, f)
        actor(policy, x[: rows * F], rows)
        for n in range(rows):
            for a in range(A):
                action[i, first + n, a] = F4(policy.max_action) * tanh(policy.out[n * A + a])


@njit(**JIT_UNCOUNTED)
def record(rollout, memory, c, reward, terminated, truncated, last_obs, i, t, ends):
    """What decision t led to -> states in ``rollout.last``, of which there were ``ends``."""
    N, F = c.num_envs, rollout.obs.shape[0]
    paid, discounted = memory.paid, memory.discounted
    for n in range(N):
        j = t * N + n
        over = terminated[i, n] or truncated[i, n]
        rollout.reward[j] = reward[i, n]
        rollout.over[j] = over
        rollout.terminated[j] = terminated[i, n] or (over and not c.bootstrap_time_limit)
        if paid.on:
            discounted[n] = discounted[n] * c.gamma + reward[i, n]
            add(paid, NIL, discounted[n])
            if over:
                discounted[n] = 0.0
        if not rollout.terminated[j] and (over or t == c.rollout_steps - 1):
            for f in range(F):
                rollout.last[f, ends] = normalised(last_obs[i, n, f], memory.seen, f)
            rollout.at[ends] = j
            ends += 1
    if paid.on:
        paid.count[1] += N
    return ends


@njit(**JIT_INNER)
def divergence(agent, B):
    """Estimate of KL(old policy || new) on the last epoch's first minibatch: the mean of rho - 1 - log rho."""
    policy, rollout, block = agent.policy, agent.rollout, agent.block
    A, (F, W), total = policy.outputs, block.x.shape, 0.0
    for start in range(0, B, W):
        count = min(W, B - start)
        gather(rollout, block, start, count)
        forward(
            policy.p, policy.std, F, policy.hidden, policy.layers, A, block.x, block.h_actor, block.q, W, policy.act
        )
        for b in range(count):
            j, logp = rollout.order[start + b], ZERO
            for a in range(A):
                std = max(policy.p[a], STD_MIN)
                z = (rollout.action[a, j] - F4(policy.max_action) * tanh(block.q[a, b])) / std
                logp -= F4(0.5) * z * z + math.log(std) + HALF_LOG_2PI
            log_rho = np.float64(logp - rollout.logp[j])
            total += math.expm1(log_rho) - log_rho
    return total / B


@njit(**JIT_UNCOUNTED)
def improve(agent, memory, c, adapts, ends, key, epoch, updates, rate):
    """Learn from the rollout -> updates so far, ``divergence`` (0 if not asked for), whether the weights are finite.

    With normalised observations the first rollout is for their mean and deviation only. epoch, updates: how many there
    were before.
    """
    rollout, seen, paid = agent.rollout, memory.seen, memory.paid
    learns, moved = not seen.on or seen.count[0] > 0, 0.0
    if paid.on:
        merge(paid)
        for j in range(rollout.reward.shape[0]):
            rollout.reward[j] = min(max(rollout.reward[j] * paid.scale[0], F4(-CLIP)), F4(CLIP))
    if learns:
        updates = learn(agent, c, ends, key, epoch, updates, rate)
        for a in range(agent.policy.std):
            if agent.policy.p[a] < F4(STD_FLOOR):  # NaN stays
                agent.policy.p[a] = F4(STD_FLOOR)
        if adapts:
            moved = divergence(agent, rollout.reward.shape[0] // c.minibatches)
    if seen.on:
        merge(seen)
    return updates, moved, finite(agent.policy.p)


def shortest() -> None:
    """The shortest training that there is, for ``ahead.py``."""
    section = PPOSection(rollout_steps=2, ppo_epochs=1, hidden_size=1, normalise_obs=True, desired_kl=0.01)
    agents = Compiled(section, [(1, 1)], torch.zeros(1, dtype=torch.int64), torch.device("cpu"), 1)
    obs, no = torch.zeros(1, 1, 1), torch.zeros(1, 1, dtype=torch.bool)
    step = SimpleNamespace(reward=torch.zeros(1, 1), terminated=no, truncated=no, last_obs=obs)
    for _ in range(2):
        for t in range(section.rollout_steps):
            agents.act(obs, t, t)
            agents.record(step, t)
        agents.learn(0)
    agents.mean_action(obs)


class Member:
    """One candidate's agent. What it needs for the time of its updates only is most of what they need, and lies in a
    buffer of the thread that does them: 2.6 of 4 MB per candidate with 48 observations and 12 actions."""

    def __init__(self, section: PPOSection, F: int, A: int, key: int) -> None:
        N, task = section.num_envs, spaces(F, A)
        nets, weights = create(section, F, A, key)
        self.c = settings(ppo.Settings, task, section, test_each=False, monte_carlo=section.advantage == "monte_carlo")
        agent = ppo.PPO.create(task, nets[0], self.c, False, weights)
        self.scratch = [x.shape for x in (*agent.block, agent.g, agent.part, agent.advantage)]
        self.agent = agent._replace(block=None, g=None, part=None, advantage=None)
        self.memory = Memory(aligned((N * F,)), Moments.create(section.normalise_obs, F),
                             Moments.create(section.normalise_reward, 1), np.zeros(N))  # fmt: skip
        unsigned = np.array([key], np.int64).view(np.uint64)[0]
        self.explore, self.shuffle = (np.uint64(fold(unsigned, stream)) for stream in (EXPLORE, REPLAY))
        self.ends, self.epoch, self.updates, self.rate = 0, 0, 0, section.lr

    @property
    def buffer_size(self) -> int:
        return sum(padded(math.prod(shape)) for shape in self.scratch) + padded(1)

    def learner(self, buffer: np.ndarray) -> Any:
        """The agent with its scratch in ``buffer``, which is set to 0: what was there before may not be finite."""
        views, first = [], 0
        for shape in self.scratch:
            n = math.prod(shape)
            views.append(buffer[first : first + n].reshape(shape))
            first += padded(n)
        buffer[:first] = 0
        *block, g, part, advantage = views
        return self.agent._replace(block=Block(*block), g=g, part=part, advantage=advantage)


class Compiled:
    """All members, shared among threads. See ``agents.shaped_ppo.Backend``."""

    def __init__(self, section: PPOSection, widths: Sequence[Tuple[int, int]], keys: Tensor, device: torch.device,
                 threads: int) -> None:  # fmt: skip
        compiled_ahead("shaped_ppo")
        self.section, self.threads = section, threads
        self.members = [Member(section, F, A, key) for (F, A), key in zip(widths, keys.tolist())]
        self.active = list(range(len(widths)))
        self.diverged = torch.zeros(len(widths), dtype=torch.bool)
        self.action = torch.zeros(len(widths), section.num_envs, max(A for _, A in widths))
        largest = max(member.buffer_size for member in self.members)
        self.buffers: SimpleQueue[np.ndarray] = SimpleQueue()  # one per thread
        for _ in range(threads):
            self.buffers.put(aligned((largest,)))
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def _each(self, one: Callable[[int, Member], None], chunk: int) -> None:
        """one(i, member) for every member that is not out; threads take ``chunk`` of them at a time."""
        parts = [self.active[first : first + chunk] for first in range(0, len(self.active), chunk)]

        def some(part: List[int]) -> None:
            for i in part:
                one(i, self.members[i])

        if self.pool is None or len(parts) < 2:
            for part in parts:
                some(part)
        else:
            list(self.pool.map(some, parts))

    @property
    def _share(self) -> int:
        """Members per thread, for calls that are too short to be handed out one by one."""
        return -(-len(self.active) // self.threads) or 1

    def act(self, obs: Tensor, decision: int, t: int) -> Tensor:
        seen, action = obs.contiguous().numpy(), self.action.numpy()

        def one(i: int, m: Member) -> None:
            act(m.agent.policy, m.agent.rollout, m.memory, seen, action, i, m.explore, decision, t)

        self._each(one, self._share)
        return self.action

    def record(self, step: Any, t: int) -> None:
        parts = [x.contiguous().numpy() for x in (step.reward, step.terminated, step.truncated, step.last_obs)]

        def one(i: int, m: Member) -> None:
            m.ends = record(m.agent.rollout, m.memory, m.c, *parts, i, t, m.ends)

        self._each(one, self._share)

    def learn(self, before: int) -> None:
        s = self.section

        def one(i: int, m: Member) -> None:
            rate = s.lr * max(0.0, 1 - before / s.train_steps) if s.anneal_lr else m.rate
            learned, buffer = m.updates, self.buffers.get()
            try:
                m.updates, moved, ok = improve(
                    m.learner(buffer), m.memory, m.c, s.desired_kl > 0, m.ends, m.shuffle, m.epoch, m.updates, rate
                )
            finally:
                self.buffers.put(buffer)
            m.ends = 0
            if m.updates > learned:
                m.epoch += s.ppo_epochs
                if s.desired_kl:
                    m.rate = adapted(m.rate, moved, s.desired_kl).item()
            self.diverged[i] = not ok

        self._each(one, 1)
        self.drop(self.diverged.nonzero()[:, 0].tolist())

    def mean_action(self, obs: Tensor) -> Tensor:
        out = torch.zeros(obs.shape[:2] + self.action.shape[2:])
        seen, action = obs.contiguous().numpy(), out.numpy()
        self._each(lambda i, m: mean_action(m.agent.policy, m.memory, seen, action, i), self._share)
        return out

    def drop(self, out: Collection[int]) -> None:
        self.active = [i for i in self.active if i not in out]
        self.action[list(out)] = 0

    def policy(self, i: int) -> Tuple[Tensor, Tensor, Tensor]:
        m = self.members[i]
        seen = m.memory.seen
        weights, mean, scale = (torch.from_numpy(x.copy()) for x in (m.agent.policy.p, seen.shift, seen.scale))
        return weights, mean, scale
