"""numba twin of ``agents/tabular/loop.py``: the whole training of a member in one compiled, GIL-free loop.

Equal to the PyTorch path bit for bit, so every fast-math flag is off: ``reassoc`` and ``contract`` would change the
rounding of Q. Tables arrive flat, ``[members, states * actions]``; a ``pair`` is an index s * A + a into them. Indices
are unsigned, because a signed one makes numba test for Python's negative indexing at every access.

What makes it fast: the greedy pair of every state is kept in ``best`` and looked for again only when a value of that
state has changed, so that the way from a state to the next is two loads; and one random draw serves a whole decision.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Callable, Dict

import numpy as np
from numba import njit

from envolve.agents.common.result import AGENT_DIVERGED, OK
from envolve.agents.kernels import JIT
from envolve.agents.kernels.common.rng import GOLDEN, bits, fold, normal
from envolve.core import rng

EXACT = dict(JIT, fastmath=False)
EXPLORE, TEST, FINAL_TEST, REWARD = (np.uint64(n) for n in (rng.EXPLORE, rng.TEST, rng.FINAL_TEST, rng.REWARD))
DRAWN_IN_UPDATE = np.uint64(2**40)  # first EXPLORE counter of the actions drawn for a target only
_0, _1, _32, _LOW = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(2**32 - 1)


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """As ``building/shortest.py`` asks for them."""
    from envolve.agents.kernels.building.shortest import train_shortest

    return {"training": partial(train_shortest, name, "Cliff")}


@njit(inline="always", **EXACT)
def _greedy(q, state, num_actions):
    """The pair of the first action of the highest value. q: one member's flat table."""
    pair = state * num_actions
    highest = q[pair]
    for i in range(pair + _1, pair + num_actions):
        if q[i] > highest:
            highest = q[i]
            pair = i
    return pair


@njit(inline="always", **EXACT)
def _decide(best, state, num_actions, key, counter, explore):
    """Epsilon-greedy pair; the draw's upper half decides whether to explore, its lower half says which action."""
    draw = bits(key, counter)
    if (draw >> _32) < explore:
        return state * num_actions + (((draw & _LOW) * num_actions) >> _32)
    return best[state]


@njit(inline="always", **EXACT)
def _step(next_state, reward, done, pair, noise, noise_key, counter):
    """One step -> state, reward, done."""
    r = reward[pair]
    if noise > np.float32(0.0):
        r += noise * normal(noise_key, counter)
    return np.uint64(next_state[pair]), r, done[pair]


@njit(inline="always", **EXACT)
def _repeat(next_state, reward, done, pair, num_actions, skip, t, max_steps, noise, noise_key, before):
    """Up to ``skip`` steps with one action, until done or the time limit -> state, summed reward, done, time.

    before: the counter of step t of the episode is before + t. No ``break`` in this loop: numba then counts references
    to the tables at every call, three times the whole step.
    """
    state, total, ended = _step(next_state, reward, done, pair, noise, noise_key, before + np.uint64(t))
    t += 1
    if skip > 1:
        action = pair % num_actions
        last = min(t + skip - 1, max_steps)
        while t < last and ended <= np.float32(0.5):
            pair = state * num_actions + action
            state, r, ended = _step(next_state, reward, done, pair, noise, noise_key, before + np.uint64(t))
            total += r
            t += 1
    return state, total, ended, t


@njit(**EXACT)
def _test(best, next_state, reward, done, start, num_actions, skip, max_steps, noise, key, first, returns):
    """Greedy episodes on the task; fills ``returns`` [T] -> their steps together.

    Task and start are fixed: without noise every episode is the same one. first: number of the first episode.
    """
    noise_key, steps = fold(key, REWARD), 0
    episodes = len(returns) if noise > np.float32(0.0) else 1
    for j in range(episodes):
        before = (first + np.uint64(j)) * np.uint64(max_steps)
        state, t, total, ended = start, 0, 0.0, np.float32(0.0)
        while t < max_steps and ended <= np.float32(0.5):
            state, r, ended, t = _repeat(
                next_state, reward, done, best[state], num_actions, skip, t, max_steps, noise, noise_key, before
            )
            total += np.float64(r)
        returns[j] = total
        steps += t
    returns[episodes:] = returns[0]
    return steps * (len(returns) // episodes)


@njit(**EXACT)
def _sum(values):
    """In order: numpy's own sum adds in pairs."""
    total = 0.0
    for value in values:
        total += value
    return total


@njit(inline="always", **EXACT)
def _mean(logged, first, last):
    """Mean of the logged rewards of episodes first..last-1 as the original takes it: 0 where there is none."""
    total = 0.0
    for e in range(first, last):
        total += np.float64(logged[e])
    return total / (np.float64(last - first) + 1e-9)


@njit(inline="always", **EXACT)
def early_out(logged, e, n, virtual, rules):
    """Whether training stops after episode ``e`` >= init_episodes (agents/tabular/loop.py has the rule in words)."""
    window = rules.window
    middle = max(0, e + 1 - window)
    avg = _mean(logged, middle, e + 1)
    if not virtual:
        return avg >= rules.solved_reward
    prev = _mean(logged, max(0, middle - window), middle)
    enough = n >= rules.min_n and e >= rules.init_episodes + window
    return enough and abs(avg - prev) / (abs(prev) + 1e-9) < rules.change


def _trainer(sarsa, counted):
    """The kernel of one algorithm: what is known when it is compiled costs nothing in the step.

    sarsa: SARSA, else Q-learning; counted: with the bonus for rare pairs.
    """
    # Q-learning's values come to rest; of the others hardly one stays, and a branch on it would be mispredicted
    always_changes = sarsa or counted

    @njit(**EXACT)
    def train_members(lo, hi, drawn, rules, world, task, results):
        """Trains members lo..hi-1; see ``tabular_records.py``. world, task: ``Steps``."""
        keys, alpha, gamma, beta, eps_init, eps_min, eps_decay, batch_size, train_steps = drawn
        skip, max_steps, synthetic, test_each = rules.skip, rules.max_steps, rules.synthetic, rules.test_each
        published, bootstrap, init_episodes = rules.published, rules.bootstrap, rules.init_episodes
        next_state, reward, done, noise = world
        task_next, task_reward, task_done, task_noise = task
        q_tables, episode_return, episode_length, test_return, steps, updates, episodes, real_steps, status = results
        num_states = q_tables.shape[1] // rules.num_actions
        num_actions, start = np.uint64(rules.num_actions), np.uint64(rules.start)
        on_policy = sarsa and not published
        plain = skip == 1 and noise == np.float32(0.0)
        visits = np.zeros(q_tables.shape[1] if counted else 0, np.int64)
        best = np.empty(num_states, np.uint64)  # the greedy pair of every state
        returns = np.empty(test_return.shape[1])
        for p in range(lo, hi):
            if status[p] != OK:
                continue
            q, logged = q_tables[p], episode_return[p]  # a view made in a loop would be counted by atomic operations
            w = p if next_state.shape[0] > 1 else 0  # one world for all, or one each
            w_next, w_reward, w_done = next_state[w], reward[w], done[w]
            key, noise_key = fold(keys[p], EXPLORE), fold(keys[p], REWARD)
            a_p, g_p = np.float32(alpha[p]), np.float32(gamma[p])
            visits[:] = 0
            for s in range(num_states):
                best[s] = np.uint64(s) * num_actions
            eps = eps_init[p]
            decision = key  # its draw 0 is that of the next decision
            u = _0  # updates so far
            n = 0  # environment steps of all episodes before this one
            finite = True
            e = 0
            while e < rules.train_episodes:
                if e > 0:
                    eps = max(eps * eps_decay[p], eps_min[p])
                explore = np.uint64(math.ceil(eps * 2.0**32))
                batch = batch_size[p] if e >= init_episodes else 0
                limit = max_steps if train_steps[p] == 0 else min(max_steps, train_steps[p] - n)
                before = np.uint64(n)
                state, t, total = start, 0, 0.0
                pair = _decide(best, state, num_actions, decision, _0, explore)
                decision += GOLDEN
                while True:
                    if plain:
                        nxt, r, ended, t = np.uint64(w_next[pair]), w_reward[pair], w_done[pair], t + 1
                    else:
                        nxt, r, ended, t = _repeat(
                            w_next, w_reward, w_done, pair, num_actions, skip, t, max_steps, noise, noise_key, before
                        )
                    total += np.float64(r)
                    over, nonterminal = False, True
                    if ended >= np.float32(0.5) or t >= limit:
                        over = ended > np.float32(0.5) or t >= limit
                        # a time limit counts as terminal on real dynamics (published behaviour), never on an SE
                        nonterminal = ended < np.float32(0.5) and (synthetic or bootstrap or t < max_steps)
                    next_pair = pair  # terminal: in no target
                    if on_policy:  # SARSA: the action of the target is the one that is executed next
                        if not over:
                            next_pair = _decide(best, nxt, num_actions, decision, _0, explore)
                            decision += GOLDEN
                        elif nonterminal:  # cut off: drawn for the target only
                            next_pair = _decide(best, nxt, num_actions, key, DRAWN_IN_UPDATE + u, explore)
                    for _ in range(batch):
                        target = r
                        if counted:
                            visits[pair] += 1
                            target += np.float32(beta[p] / (np.sqrt(np.float64(visits[pair])) + 1e-9))
                        if nonterminal:
                            if not sarsa:
                                next_pair = best[nxt]
                            elif published:
                                next_pair = _decide(best, nxt, num_actions, key, DRAWN_IN_UPDATE + u, explore)
                            target += g_p * q[next_pair]  # r + gamma Q(s', a')
                        old = q[pair]
                        value = old + a_p * (target - old)  # Q += alpha (target - Q)
                        u += _1
                        if always_changes or value != old:
                            q[pair] = value
                            if not np.isfinite(value):  # a table does not recover from it
                                finite, over = False, True
                            best[state] = _greedy(q, state, num_actions)
                    if over:
                        break
                    state = nxt
                    if on_policy:
                        pair = next_pair
                    else:
                        pair = _decide(best, state, num_actions, decision, _0, explore)
                        decision += GOLDEN
                n += t
                episode_length[p, e] = t
                if not finite:
                    logged[e] = np.float32(total)
                    status[p] = AGENT_DIVERGED
                    e += 1
                    break
                if test_each:
                    real_steps[p] += _test(
                        best,
                        task_next,
                        task_reward,
                        task_done,
                        start,
                        num_actions,
                        skip,
                        max_steps,
                        task_noise,
                        fold(keys[p], TEST),
                        np.uint64(e * len(returns)),
                        returns,
                    )
                    total = _sum(returns) / len(returns)
                logged[e] = np.float32(total)
                spent = train_steps[p] > 0 and n >= train_steps[p]
                virtual = synthetic and not test_each
                early = e >= init_episodes and early_out(logged, e, n, virtual, rules)
                e += 1
                if spent or early:
                    break
            steps[p], updates[p], episodes[p] = n, np.int64(u), e
            if not synthetic:
                real_steps[p] += n
            if finite:
                real_steps[p] += _test(
                    best,
                    task_next,
                    task_reward,
                    task_done,
                    start,
                    num_actions,
                    skip,
                    max_steps,
                    task_noise,
                    fold(keys[p], FINAL_TEST),
                    np.uint64(0),
                    test_return[p],
                )

    return train_members


TRAIN_MEMBERS = {
    "ql": _trainer(sarsa=False, counted=False),
    "ql_cb": _trainer(sarsa=False, counted=True),
    "sarsa": _trainer(sarsa=True, counted=False),
    "sarsa_cb": _trainer(sarsa=True, counted=True),
}
