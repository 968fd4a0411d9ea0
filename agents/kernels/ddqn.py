"""numba twin of ``agents/ddqn.py``: a member's whole inner loop (act, world step, replay, sample, update, early out,
tests) as one function without the GIL. Equality with the PyTorch path is tested in tests/agents/test_ddqn.py.

Cost per step at 4-57-2 tanh, batch 199: the update's 0.59 MFLOP and 34,000 tanh, i.e. a floor of 12 to 14 us on a core
that does 110 GFLOP/s (docs/architecture.md); members are independent, so a chunk is a loop and threads take members.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from agents.kernels import JIT, tasks
from agents.kernels.mlp import F4, ONE, ZERO, adam_soft_update, backward, forward, predict
from agents.kernels.mlp_small import INPUTS, OUTPUTS, backward_small, forward_small
from agents.kernels.rng import fold, integer, uniform

REAL, SE, RN = 0, 1, 2
KINDS = {"real": REAL, "se": SE, "rn": RN}
OUTPUT_BOUND = F4(1000.0)  # envs.world.OUTPUT_BOUND
U = np.uint64
EXPLORE, REPLAY, RESET, TEST, FINAL_TEST = U(3), U(4), U(2), U(5), U(6)  # envs.rng's streams

# Columns of the per-member configuration.
FLOATS = ("lr", "gamma", "tau", "eps_init", "eps_min", "eps_decay", "early_out_virtual_diff", "solved_reward")
LR, GAMMA, TAU, EPS_INIT, EPS_MIN, EPS_DECAY, EARLY_DIFF, SOLVED = range(len(FLOATS))
INTS = (
    "hidden_size", "hidden_layer", "act", "batch_size", "init_episodes", "train_episodes", "train_steps", "max_steps",
    "same_action_num", "early_out_num", "early_out_min_steps", "test_episodes", "capacity", "bootstrap", "test_each",
    "task", "observation_size", "num_actions", "kind", "rn_type", "world_hidden", "world_layers", "world_act",
    "raw_done",
)  # fmt: skip
(
    HIDDEN, LAYERS, ACT, BATCH, INIT_EPISODES, EPISODES, STEPS, MAX_STEPS, REPEAT, EARLY_NUM, EARLY_MIN, TESTS,
    CAPACITY, BOOTSTRAP, TEST_EACH, TASK, OBS, ACTIONS, KIND, RN_TYPE, W_HIDDEN, W_LAYERS, W_ACT, RAW_DONE,
) = range(len(INTS))  # fmt: skip


@njit(**JIT)
def greedy(p, ci, x, q, h, h2):
    """argmax_a Q(x, a); the first of equal ones."""
    predict(p, 0, ci[OBS], ci[HIDDEN], ci[LAYERS], ci[ACTIONS], ci[ACT], x, q, h, h2)
    best = 0
    for a in range(1, ci[ACTIONS]):
        if q[a] > q[best]:
            best = a
    return best


@njit(**JIT)
def test(p, ci, key, counter, returns, x, q, h, h2):
    """Greedy episodes on the real task -> returns[T]. Returns the number of steps taken."""
    s, R = np.empty(4), tasks.reset_uniforms(ci[TASK])
    taken = 0
    for j in range(ci[TESTS]):
        tasks.reset(ci[TASK], s, key, counter + U(j * R))
        total, t, over = 0.0, 0, False
        while t < ci[MAX_STEPS] and not over:
            tasks.observe(ci[TASK], s, x)
            a = greedy(p, ci, x, q, h, h2)
            for _ in range(ci[REPEAT]):
                r, over = tasks.step(ci[TASK], s, a)
                total += r
                t += 1
                if over or t >= ci[MAX_STEPS]:
                    break
        returns[j] = total
        taken += t
    return taken


@njit(**JIT)
def learn(
    p, target, m, v, g, buf, stored, update, key, cf, ci, x, x2, h, dh, q, q2, qt, best, reward, discount, action
):
    """One double-DQN update on a uniform batch with replacement.

    y = r + gamma (1 - d) Q_target(s', argmax_a Q(s', a)),  loss = mean (Q(s, a) - y)^2
    """
    S, A, B, L = ci[OBS], ci[ACTIONS], ci[BATCH], x.shape[1]
    gamma = F4(cf[GAMMA])
    for i in range(B):  # apart from the gather, so that the hashing vectorises
        action[i] = np.int32(integer(key, U(update) * U(65536) + U(i), U(stored)))
    for i in range(B):
        j = action[i]
        for f in range(S):
            x[f, i] = buf[j, f]
            x2[f, i] = buf[j, S + f]
        action[i] = np.int32(buf[j, 2 * S])
        reward[i] = buf[j, 2 * S + 1]
        discount[i] = gamma * (ONE - buf[j, 2 * S + 2])
    H, layers, act = ci[HIDDEN], ci[LAYERS], ci[ACT]
    small = S == INPUTS and A == OUTPUTS and layers == 1
    if small:
        forward_small(target, H, x2, h[0], qt, L, act)
        forward_small(p, H, x2, h[0], q2, L, act)
        forward_small(p, H, x, h[0], q, L, act)
    else:
        forward(target, 0, S, H, layers, A, x2, h, qt, L, act)
        forward(p, 0, S, H, layers, A, x2, h, q2, L, act)
        forward(p, 0, S, H, layers, A, x, h, q, L, act)
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
            q2[a, i] = error if action[i] == a else ZERO
        for i in range(B, L):
            q2[a, i] = ZERO
    if small:
        backward_small(p, H, x, h[0], q2, L, g, act)
    else:
        backward(p, 0, S, H, layers, A, x, h, q2, dh, L, g, act)
    c1, c2 = 1.0 - 0.9 ** (update + 1), 1.0 - 0.999 ** (update + 1)
    adam_soft_update(p, target, m, v, g, 0, p.shape[0], F4(cf[LR] / c1), F4(1.0 / math.sqrt(c2)), F4(cf[TAU]))


@njit(**JIT)
def train(world, cf, ci, key, p, test_returns, episode_return, episode_length, counts):
    """Train one member and test it.

    world: flat float32 parameters; p: float32 [D], the agent's initial weights, replaced by the trained ones;
    test_returns: float64 [T]; episode_return: float32 [E]; episode_length: int32 [E];
    counts: int64 [5] <- train steps, updates, episodes, real steps, status (agents/result.py).
    """
    S, A, H, B = ci[OBS], ci[ACTIONS], ci[HIDDEN], ci[BATCH]
    L = (B + 15) // 16 * 16
    D = p.shape[0]
    kind, task = ci[KIND], ci[TASK]
    R = tasks.reset_uniforms(task)
    explore_key, replay_key, reset_key, test_key = (
        fold(key, EXPLORE),
        fold(key, REPLAY),
        fold(key, RESET),
        fold(key, TEST),
    )
    target = p.copy()
    m, v, g = np.zeros(D, F4), np.zeros(D, F4), np.empty(D, F4)
    buf = np.empty((ci[CAPACITY], 2 * S + 3), F4)
    x, x2 = np.zeros((S, L), F4), np.zeros((S, L), F4)
    q, q2, qt = np.zeros((A, L), F4), np.zeros((A, L), F4), np.zeros((A, L), F4)
    h, dh = np.zeros((ci[LAYERS], H, L), F4), np.zeros((2, H, L), F4)
    best, reward, discount, action = np.empty(L, F4), np.empty(L, F4), np.empty(L, F4), np.empty(L, np.int32)
    width = max(H, ci[W_HIDDEN])
    one_h, one_h2, one_q, out = np.empty(width, F4), np.empty(width, F4), np.empty(A, F4), np.empty(1, F4)
    obs, nxt, world_in, s = np.empty(S, F4), np.empty(S, F4), np.empty(A + S, F4), np.empty(4)
    round_returns = np.empty(ci[TESTS])
    test_returns[:] = np.nan
    counts[:] = 0
    n, decisions, updates, real_steps, status = 0, 0, 0, 0, 0
    eps = cf[EPS_INIT]
    window = ci[EARLY_NUM]

    for e in range(ci[EPISODES]):
        if e > 0:
            eps = max(eps * cf[EPS_DECAY], cf[EPS_MIN])
        tasks.reset(task, s, reset_key, U(e * R))
        tasks.observe(task, s, obs)
        phi = ZERO
        if kind == RN and ci[RN_TYPE] in (1, 2):
            predict(world, 0, S, ci[W_HIDDEN], ci[W_LAYERS], 1, ci[W_ACT], obs, out, one_h, one_h2)
            phi = out[0]
        total, t, over = 0.0, 0, False
        while t < ci[MAX_STEPS] and not over:
            if uniform(explore_key, U(2 * decisions)) < F4(eps):
                a = integer(explore_key, U(2 * decisions + 1), U(A))
            else:
                a = greedy(p, ci, obs, one_q, one_h, one_h2)
            decisions += 1
            r, done = ZERO, ZERO
            for f in range(S):
                buf[(decisions - 1) % ci[CAPACITY], f] = obs[f]
            for _ in range(ci[REPEAT]):
                if kind == SE:
                    for i in range(A):
                        world_in[i] = ONE if i == a else ZERO
                    for f in range(S):
                        world_in[A + f] = obs[f]
                    o = predict(world, 0, A + S, ci[W_HIDDEN], ci[W_LAYERS], S, ci[W_ACT], world_in, nxt, one_h, one_h2)
                    for f in range(S):
                        if not math.isfinite(nxt[f]):
                            status = 1
                        obs[f] = min(max(nxt[f], -OUTPUT_BOUND), OUTPUT_BOUND)
                    o = predict(world, o, A + S, ci[W_HIDDEN], ci[W_LAYERS], 1, ci[W_ACT], world_in, out, one_h, one_h2)
                    if not math.isfinite(out[0]):
                        status = 1
                    r += min(max(out[0], -OUTPUT_BOUND), OUTPUT_BOUND)
                    predict(world, o, A + S, ci[W_HIDDEN], ci[W_LAYERS], 1, ci[W_ACT], world_in, out, one_h, one_h2)
                    if not math.isfinite(out[0]):
                        status = 1
                    done = min(max(out[0], -OUTPUT_BOUND), OUTPUT_BOUND)
                    over = done > F4(0.5)
                    if ci[RAW_DONE] == 0:
                        done = ONE if over else ZERO
                else:
                    task_reward, over = tasks.step(task, s, a)
                    tasks.observe(task, s, obs)
                    real_steps += 1
                    if kind == RN and ci[RN_TYPE] > 0:
                        predict(world, 0, S, ci[W_HIDDEN], ci[W_LAYERS], 1, ci[W_ACT], obs, out, one_h, one_h2)
                        if not math.isfinite(out[0]):
                            status = 1
                        shaped = out[0]
                        if ci[RN_TYPE] in (1, 2):  # potential: gamma phi(s') - phi(s)
                            shaped = F4(cf[GAMMA]) * out[0] - phi
                            phi = out[0]
                        r += shaped + (task_reward if ci[RN_TYPE] % 2 == 0 else ZERO)
                    else:
                        r += task_reward
                    done = ONE if over else ZERO
                t += 1
                n += 1
                if status != 0 or over or t >= ci[MAX_STEPS]:
                    break
            if status != 0:
                break
            if kind != SE and t >= ci[MAX_STEPS] and ci[BOOTSTRAP] == 0:
                done = ONE
            row = (decisions - 1) % ci[CAPACITY]
            for f in range(S):
                buf[row, S + f] = obs[f]
            buf[row, 2 * S], buf[row, 2 * S + 1], buf[row, 2 * S + 2] = F4(a), r, done
            total += r
            if e >= ci[INIT_EPISODES]:
                stored = min(decisions, ci[CAPACITY])
                learn(
                    p, target, m, v, g, buf, stored, updates, replay_key, cf, ci,
                    x, x2, h, dh, q, q2, qt, best, reward, discount, action,
                )  # fmt: skip
                updates += 1
            if ci[STEPS] > 0 and n >= ci[STEPS]:
                break
        for i in range(D):
            if not math.isfinite(p[i]) and status == 0:
                status = 2
        counts[2] = e + 1
        episode_length[e] = t
        if status != 0:
            break
        if ci[TEST_EACH] == 1:
            real_steps += test(p, ci, test_key, U(e * ci[TESTS] * R), round_returns, nxt, one_q, one_h, one_h2)
            total = round_returns.mean()
        episode_return[e] = total
        if ci[STEPS] > 0 and n >= ci[STEPS]:
            break
        if e >= ci[INIT_EPISODES] and early_out(episode_return, e, n, window, cf, ci):
            break

    counts[0], counts[1], counts[4] = n, updates, status
    if status == 0:
        real_steps += test(p, ci, fold(key, FINAL_TEST), U(0), test_returns, nxt, one_q, one_h, one_h2)
    counts[3] = real_steps


@njit(**JIT)
def early_out(logged, e, n, window, cf, ci):
    """The stopping rules of spec 3.3 after episode e: returns settled (SE), or the task is solved."""
    count, before = min(window, e + 1), min(window, max(0, e + 1 - window))
    avg, prev = 0.0, 0.0
    for i in range(count):
        avg += logged[e - i]
    for i in range(before):
        prev += logged[e - window - i]
    avg /= count + 1e-9
    prev /= before + 1e-9
    if ci[KIND] == SE and ci[TEST_EACH] == 0:
        settled = abs(avg - prev) / (abs(prev) + 1e-9) < cf[EARLY_DIFF]
        return settled and n >= ci[EARLY_MIN] and e >= ci[INIT_EPISODES] + window
    return avg >= cf[SOLVED]
