"""numba twin of ``agents/tabular_loop.py``: the whole training of a member in one compiled, GIL-free loop.

Equal to the PyTorch path bit for bit, so every fast-math flag is off: ``reassoc`` and ``contract`` would change the
rounding of Q. Tables arrive flat, ``[members, states * actions]``; indices are unsigned, because a signed one makes
numba test for Python's negative indexing at every access.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from agents.kernels import JIT
from agents.kernels.rng import fold, integer, uniform
from agents.result import AGENT_DIVERGED, OK
from envs import rng

EXACT = dict(JIT, fastmath=False)
EXPLORE = np.uint64(rng.EXPLORE)
DRAWN_IN_UPDATE = np.uint64(2**40)  # first EXPLORE counter of the actions drawn for a target only
_1, _2 = np.uint64(1), np.uint64(2)


@njit(inline="always", **EXACT)
def _greedy(q, state, num_actions):
    """First action of the highest value. q: one member's flat table."""
    row = state * num_actions
    action = np.uint64(0)
    best = q[row]
    for a in range(_1, num_actions):
        if q[row + a] > best:
            best = q[row + a]
            action = a
    return action


@njit(inline="always", **EXACT)
def _decide(q, state, num_actions, key, counter, eps):
    """Epsilon-greedy; the random action is only drawn where it is needed."""
    if np.float64(uniform(key, counter)) < eps:
        return np.uint64(integer(key, counter + _1, num_actions))
    return _greedy(q, state, num_actions)


@njit(inline="always", **EXACT)
def _repeat(next_state, reward, done, state, action, num_actions, skip, t, max_steps):
    """Up to ``skip`` steps with one action, until done or the time limit -> state, summed reward, done, time.

    No ``break`` in this loop: numba then counts references to the tables at every call, three times the whole step.
    """
    total = np.float32(0.0)
    ended = np.float32(0.0)
    last = min(t + skip, max_steps)
    while t < last and ended <= np.float32(0.5):
        i = state * num_actions + action
        total += reward[i]
        ended = done[i]
        state = np.uint64(next_state[i])
        t += 1
    return state, total, ended, t


@njit(**EXACT)
def _test(q, next_state, reward, done, start, num_actions, skip, max_steps):
    """One greedy episode on the task -> return, length. Task and start are fixed, so every episode is this one."""
    state, t, total = start, 0, 0.0
    while t < max_steps:
        action = _greedy(q, state, num_actions)
        state, r, ended, t = _repeat(next_state, reward, done, state, action, num_actions, skip, t, max_steps)
        total += np.float64(r)
        if ended > np.float32(0.5):
            break
    return total, t


@njit(**EXACT)
def _mean(logged, first, last):
    """Mean of the logged rewards of episodes first..last-1 as the original takes it: 0 where there is none."""
    total = 0.0
    for e in range(first, last):
        total += np.float64(logged[e])
    return total / (np.float64(last - first) + 1e-9)


@njit(**EXACT)
def early_out(logged, e, window, n, virtual, min_n, init_episodes, change, solved_reward):
    """Whether training stops after episode ``e`` >= init_episodes (agents/tabular_loop.py has the rule in words)."""
    middle = max(0, e + 1 - window)
    avg = _mean(logged, middle, e + 1)
    if not virtual:
        return avg >= solved_reward
    prev = _mean(logged, max(0, middle - window), middle)
    return n >= min_n and e >= init_episodes + window and abs(avg - prev) / (abs(prev) + 1e-9) < change


@njit(**EXACT)
def train_members(
    lo, hi, keys, sarsa, counted, published,  # what learns; keys uint64 [P]
    alpha, gamma, beta, eps_init, eps_min, eps_decay, batch_size, train_steps,  # [P]
    train_episodes, test_episodes, init_episodes, skip, window, change, min_n, bootstrap,
    next_state, reward, done,  # world, [P or 1, nS * nA]
    task_next, task_reward, task_done, start, num_actions,  # task, [nS * nA]
    synthetic, max_steps, solved_reward, test_each,
    q_tables, episode_return, episode_length, final_return, steps, updates, episodes, real_steps, status,  # results
):  # fmt: skip
    """Train members lo..hi-1; results are written into the arrays of the last line. status != OK: not trained."""
    num_actions, start = np.uint64(num_actions), np.uint64(start)
    on_policy = sarsa and not published
    visits = np.zeros(q_tables.shape[1] if counted else 0, np.int64)
    for p in range(lo, hi):
        if status[p] != OK:
            continue
        q = q_tables[p]
        w = p if next_state.shape[0] > 1 else 0  # one world for all, or one each
        w_next, w_reward, w_done = next_state[w], reward[w], done[w]
        key = fold(keys[p], EXPLORE)
        a_p, g_p = np.float32(alpha[p]), np.float32(gamma[p])
        visits[:] = 0
        eps = eps_init[p]
        d = np.uint64(0)  # decisions so far
        u = np.uint64(0)  # updates so far
        n = 0  # environment steps so far
        finite = True
        e = 0
        while e < train_episodes:
            if e > 0:
                eps = max(eps * eps_decay[p], eps_min[p])
            state, t, total = start, 0, 0.0
            action = _decide(q, state, num_actions, key, _2 * d, eps)
            d += _1
            first_n = n
            while True:
                i = state * num_actions + action
                before = t
                nxt, r, ended, t = _repeat(w_next, w_reward, w_done, state, action, num_actions, skip, t, max_steps)
                n += t - before
                total += np.float64(r)
                over = ended > np.float32(0.5) or t >= max_steps or (train_steps[p] > 0 and n >= train_steps[p])
                # a time limit counts as terminal on real dynamics (published behaviour), never on an SE
                nonterminal = ended < np.float32(0.5) and (synthetic or bootstrap or t < max_steps)
                if on_policy:  # SARSA: the action of the target is the one that is executed next
                    if not over:
                        next_action = _decide(q, nxt, num_actions, key, _2 * d, eps)
                        d += _1
                    elif nonterminal:  # cut off: drawn for the target only
                        next_action = _decide(q, nxt, num_actions, key, DRAWN_IN_UPDATE + _2 * u, eps)
                    else:
                        next_action = action  # terminal: in no target
                if e >= init_episodes:
                    for _ in range(batch_size[p]):
                        target = r
                        if counted:
                            visits[i] += 1
                            target += np.float32(beta[p] / (np.sqrt(np.float64(visits[i])) + 1e-9))
                        if nonterminal:
                            if not sarsa:
                                best = _greedy(q, nxt, num_actions)
                            elif published:
                                best = _decide(q, nxt, num_actions, key, DRAWN_IN_UPDATE + _2 * u, eps)
                            else:
                                best = next_action
                            target += g_p * q[nxt * num_actions + best]  # r + gamma Q(s', a')
                        value = q[i] + a_p * (target - q[i])  # Q += alpha (target - Q)
                        q[i] = value
                        finite = finite and np.isfinite(value)
                        u += _1
                if over or not finite:
                    break
                state = nxt
                if on_policy:
                    action = next_action
                else:
                    action = _decide(q, state, num_actions, key, _2 * d, eps)
                    d += _1
            episode_length[p, e] = n - first_n
            if not finite:
                episode_return[p, e] = np.float32(total)
                status[p] = AGENT_DIVERGED
                e += 1
                break
            if test_each:
                total, length = _test(q, task_next, task_reward, task_done, start, num_actions, skip, max_steps)
                real_steps[p] += test_episodes * length
            episode_return[p, e] = np.float32(total)
            spent = train_steps[p] > 0 and n >= train_steps[p]
            virtual = synthetic and not test_each
            early = e >= init_episodes and early_out(
                episode_return[p], e, window, n, virtual, min_n, init_episodes, change, solved_reward
            )
            e += 1
            if spent or early:
                break
        steps[p], updates[p], episodes[p] = n, np.int64(u), e
        if not synthetic:
            real_steps[p] += n
        if finite:
            total, length = _test(q, task_next, task_reward, task_done, start, num_actions, skip, max_steps)
            final_return[p] = total
            real_steps[p] += test_episodes * length
