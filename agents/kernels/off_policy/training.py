"""numba twin of ``agents/off_policy/training.py``: a member's whole inner loop (act, world step, replay, sample,
update, early out, tests) as one function without the GIL, for every algorithm that learns from a replay buffer.

An algorithm is a file beside this one with

- a NamedTuple class, one member's agent: its hyperparameters, its ``weights`` (``Weights``) and whatever arrays it
  needs between and within updates; the loop hands it around and looks at ``agent.weights.p`` alone. Fields are arrays,
  int, float, bool or such tuples; scalars that change are arrays of one. Its classmethod ``create(task, section, p)``
  makes one, ``section`` holding the member's own hyperparameters, and ``columns(task)`` says how many numbers of an
  action the replay stores (Aw);
- the four functions declared below, as plain functions, and ``implement(Class, learn=learn, ...)``: ``dispatch.py``
  says how the loop finds them. Functions that they call are ``@njit(**JIT_UNCOUNTED)``; none can allocate arrays.
  Large ones say ``out_of_line()`` first: copies of them are what compiling would take long;
- a line in ``TWINS`` of ``population.py``.

Members are independent: a chunk is a loop over this function, and threads take members. Random numbers are counted, not
streamed: decision d draws the EXPLORE counters from d W on, W being the algorithm's own constant; row i of update u has
REPLAY counter 65536 u + i; episode e is reset number e.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED
from envolve.agents.kernels import JIT_INNER, JIT_UNCOUNTED
from envolve.agents.kernels.common import worlds
from envolve.agents.kernels.common.rng import fold, integer
from envolve.agents.kernels.dense.gemm import out_of_line
from envolve.agents.kernels.dense.mlp import F4, ONE, aligned
from envolve.agents.kernels.off_policy.dispatch import by_type
from envolve.core import rng

U = np.uint64
RESET, EXPLORE, REPLAY, TEST = U(rng.RESET), U(rng.EXPLORE), U(rng.REPLAY), U(rng.TEST)
FINAL_TEST, UPDATE = U(rng.FINAL_TEST), U(rng.UPDATE)


class Weights(NamedTuple):
    """All nets of an agent behind each other, [D] each: parameters, target nets, Adam's moments, gradient."""

    p: np.ndarray
    target: np.ndarray
    m: np.ndarray
    v: np.ndarray
    g: np.ndarray

    @classmethod
    def create(cls, p: np.ndarray) -> Weights:
        """The target is a copy of p; p itself is trained in place."""
        target, m, v, g = (aligned((len(p),)) for _ in range(4))
        target[:] = p
        return cls(p, target, m, v, g)


class OffPolicySettings(NamedTuple):
    """What the loop needs to know of one member; names as in the sections."""

    train_episodes: int
    init_episodes: int
    train_steps: int  # 0: no limit
    max_steps: int
    test_steps: int
    same_action_num: int
    early_out_num: int
    early_out_min_steps: int
    early_out_virtual_diff: float
    solved_reward: float
    test_episodes: int
    test_each: bool
    bootstrap_time_limit: bool
    capacity: int
    batch_size: int
    gamma: float


def padded(batch_size: int) -> int:
    """L, the columns of a batch: the next multiple of 16, the numbers in a vector register."""
    return -(-batch_size // 16) * 16


class Batch(NamedTuple):
    """B sampled transitions, feature-major and padded to L columns, a multiple of 16; what is beyond B stays zero.

    The two first hold state and action behind each other, as critics read them; a net of the state alone reads the
    first F rows. The action rows of ``next_sa`` are free for the algorithm.
    """

    sa: np.ndarray  # [F + Aw, L]
    next_sa: np.ndarray  # [F + Aw, L]
    reward: np.ndarray  # [L]
    discount: np.ndarray  # [L], gamma (1 - done)
    drawn: np.ndarray  # int32 [L], rows of the replay buffer

    @classmethod
    def create(cls, rows: int, batch_size: int) -> Batch:
        """rows: F + Aw."""
        L = padded(batch_size)
        return cls(aligned((rows, L)), aligned((rows, L)), aligned((L,)), aligned((L,)), np.zeros(L, np.int32))


@njit(**JIT_INNER)
def looks_ahead(batch):
    """Whether any of its targets needs a value of s'. In a bandit none does: that is a third of TD3's arithmetic."""
    for i in range(batch.discount.shape[0]):
        if batch.discount[i] != 0:
            return True
    return False


# ------------------------------------------------------------------------------------------------- of the algorithm


@by_type
def begin_episode(agent, episode):
    """Before each training episode: schedules."""


@by_type
def explore(agent, key, decision, episode, obs, action):
    """The action of training decision ``decision`` (from 0, in all episodes) at obs[F]: fills action[Aw], what the
    replay stores; returns the index of a discrete action, 0 for continuous ones. key: of stream EXPLORE."""


@by_type
def test_action(agent, key, step, obs, action):
    """The same for tests. key and step (its number in all tests) are for published tests, which explore."""


@by_type
def learn(agent, batch, key, decision, update):
    """Update number ``update`` (from 1), after decision number ``decision`` (from 0). key: of stream UPDATE."""


# --------------------------------------------------------------------------------------------------------- the loop


@njit(**JIT_INNER)
def test(agent, task, c, key, first, action, returns):
    """Episodes on the real task, resets first, first + 1, ... -> returns[T]. Returns the steps taken."""
    out_of_line()
    taken, noise_key = 0, fold(key, EXPLORE)
    for j in range(c.test_episodes):
        worlds.reset(task, key, first + j)
        total, t, over = 0.0, 0, False
        while t < c.test_steps and not over:
            index = test_action(agent, noise_key, (first + j) * c.max_steps + t, task.obs, action)
            r, _, over, _, steps = worlds.repeat(task, index, action, c.same_action_num, c.test_steps - t)
            total += r
            t += steps
        returns[j] = total
        taken += t
    return taken


@njit(**JIT_INNER)
def sample(rows, stored, key, update, c, batch):
    """Uniform with replacement. rows: [capacity, 2 F + Aw + 2] float32, s, s', action, r, d."""
    out_of_line()
    B, width, gamma = c.batch_size, rows.shape[1], F4(c.gamma)
    F = width - 2 - batch.sa.shape[0]  # width - 2 = 2 F + Aw
    Aw = batch.sa.shape[0] - F
    for i in range(B):  # apart from the gather, so that the hashing vectorises
        batch.drawn[i] = np.int32(integer(key, U(update) * U(65536) + U(i), U(stored)))
    for i in range(B):
        j = batch.drawn[i]
        for f in range(F):
            batch.sa[f, i] = rows[j, f]
            batch.next_sa[f, i] = rows[j, F + f]
        for a in range(Aw):
            batch.sa[F + a, i] = rows[j, 2 * F + a]
        batch.reward[i] = rows[j, width - 2]
        batch.discount[i] = gamma * (ONE - rows[j, width - 1])


@njit(**JIT_UNCOUNTED)
def train(agent, world, task, c, rows, batch, action, key, test_returns, episode_return, episode_length, counts):
    """Train one member and test it.

    world, task: ``KernelWorld``, what it trains in and what it is tested on; c: ``OffPolicySettings``;
    test_returns: float64 [T]; episode_return: float32 [E]; episode_length: int32 [E]; counts: int64 [5] <- train steps,
    updates, episodes, real steps, status (agents/common/result.py).
    """
    F = world.obs.shape[0]
    Aw = batch.sa.shape[0] - F
    width = 2 * F + Aw + 2
    explore_key, replay_key, reset_key = fold(key, EXPLORE), fold(key, REPLAY), fold(key, RESET)
    test_key, update_key = fold(key, TEST), fold(key, UPDATE)
    n, decisions, real_steps, status = 0, 0, 0, OK
    updates = np.int64(0)  # numba compiles what it calls anew for the literal 0

    for e in range(c.train_episodes):
        begin_episode(agent, e)
        worlds.reset(world, reset_key, e)
        total, t, over, spent = 0.0, 0, False, False
        while t < c.max_steps and not over and not spent:
            index = explore(agent, explore_key, decisions, e, world.obs, action)
            row = rows[decisions % c.capacity]
            for f in range(F):
                row[f] = world.obs[f]
            r, done, over, failed, steps = worlds.repeat(world, index, action, c.same_action_num, c.max_steps - t)
            t += steps
            n += steps
            if failed:
                status = WORLD_DIVERGED
                break
            if world.kind != worlds.SE and t >= c.max_steps and not c.bootstrap_time_limit:
                done = ONE
            for f in range(F):
                row[F + f] = world.obs[f]
            for a in range(Aw):
                row[2 * F + a] = action[a]
            row[width - 2], row[width - 1] = r, done
            total += r
            decisions += 1
            if e >= c.init_episodes:
                sample(rows, min(decisions, c.capacity), replay_key, updates, c, batch)
                updates += 1
                learn(agent, batch, update_key, decisions - 1, updates)
            spent = c.train_steps > 0 and n >= c.train_steps
        counts[2] = e + 1
        episode_length[e] = t
        if status == OK and not finite(agent.weights.p):
            status = AGENT_DIVERGED
        if status != OK:
            break
        if c.test_each:
            real_steps += test(agent, task, c, test_key, e * c.test_episodes, action, test_returns)
            total = test_returns.mean()
        episode_return[e] = total
        if spent or (e >= c.init_episodes and early_out(episode_return, e, n, world.kind, c)):
            break

    if world.kind != worlds.SE:
        real_steps += n
    if status == OK:
        real_steps += test(agent, task, c, fold(key, FINAL_TEST), np.int64(0), action, test_returns)
    else:
        test_returns[:] = np.nan
    counts[0], counts[1], counts[3], counts[4] = n, updates, real_steps, status


@njit(**JIT_INNER)
def finite(x):
    for i in range(x.shape[0]):
        if not math.isfinite(x[i]):
            return False
    return True


@njit(**JIT_INNER)
def early_out(logged, e, n, kind, c):
    """The stopping rules of ``agents/common/early_out.py`` after episode e: returns settled (SE), or the task is
    solved."""
    window = c.early_out_num
    count, before = min(window, e + 1), min(window, max(0, e + 1 - window))
    avg, prev = 0.0, 0.0
    for i in range(count):
        avg += logged[e - i]
    for i in range(before):
        prev += logged[e - window - i]
    avg /= count + 1e-9
    prev /= before + 1e-9
    if kind == worlds.SE and not c.test_each:
        settled = abs(avg - prev) / (abs(prev) + 1e-9) < c.early_out_virtual_diff
        return settled and n >= c.early_out_min_steps and e >= c.init_episodes + window
    return avg >= c.solved_reward
