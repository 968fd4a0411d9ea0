"""The training loop of the tabular learners, readable: every pass advances all members by one decision.

``agents/kernels/tabular.py`` is its compiled twin, one member after another; both return the same bits.

Axes: L members still in training of a population of P, S states, A actions; a pair (s, a) has the flat index s * A + a.
The start state is fixed, so a reset draws no random number. One draw serves a whole decision: its upper half decides
whether to explore, its lower half says which action.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.early_out import early_out
from envolve.agents.common.hyper import Hyper
from envolve.agents.common.result import AGENT_DIVERGED, OK, TrainResult
from envolve.agents.common.sections import TabularSection
from envolve.agents.tabular import q_learning, sarsa
from envolve.core import rng

PER_MEMBER = ("alpha", "gamma", "beta", "eps_init", "eps_min", "eps_decay", "batch_size", "train_steps")
DRAWN_IN_UPDATE = 2**40  # first EXPLORE counter of the actions drawn for a target only
LOW = 2**32 - 1


class Tables(NamedTuple):
    """Finite dynamics, flat: next state, reward and done of (world, s, a) at world * S * A + s * A + a."""

    next_state: Any
    reward: Any
    done: Any


class Noise(NamedTuple):
    """Gaussian noise on the rewards of the next steps of L members."""

    scale: float  # standard deviation
    key: Tensor  # int64 [L]
    counter: Tensor  # int64 [L], of the next step


@dataclass
class Setting:
    """Inputs shared by all members of one call."""

    algorithm: str
    hyper: Hyper  # of a TabularSection
    world: Tables  # numpy [W, S * A]; W is P, or 1 where all members train in the same world
    task: Tables  # numpy [1, S * A]
    world_noise: float  # standard deviation of the Gaussian noise on a reward of the world
    task_noise: float  # the same of the task
    start: int
    actions: int
    synthetic: bool
    max_steps: int
    solved_reward: float
    test_each: bool


@dataclass
class TabularMembers:
    """Members still in training: fields [L], int64 unless noted."""

    row: Tensor  # index in the population
    world: Tensor  # offset of their world in the flat tables
    key: Tensor  # of the exploration
    noise_key: Tensor
    alpha: Tensor  # float32, as gamma
    gamma: Tensor
    beta: Tensor  # float64, as the three of eps
    eps: Tensor
    eps_min: Tensor
    eps_decay: Tensor
    batch_size: Tensor
    train_steps: Tensor
    q: Tensor  # float32 [L, S, A]
    visits: Tensor  # [L, S, A]
    state: Tensor
    action: Tensor
    t: Tensor  # steps in this episode
    n: Tensor  # steps, all episodes
    decisions: Tensor
    updates: Tensor
    episode: Tensor
    total: Tensor  # float64, this episode's return

    def keep(self, mask: Tensor) -> TabularMembers:
        """Selects the members where mask [L] is true."""
        return TabularMembers(*(getattr(self, f.name)[mask] for f in fields(self)))


def train(setting: Setting, keys: Tensor, result: TrainResult) -> None:
    """Train and test every member whose status is OK; fills ``result``. keys int64 [P]."""
    h: TabularSection = setting.hyper.section  # type: ignore[assignment]
    synthetic, max_steps, skip = setting.synthetic, setting.max_steps, h.same_action_num
    world = Tables(*(torch.from_numpy(t).reshape(-1) for t in setting.world))
    logged = torch.from_numpy(result.episode_return)  # shares memory with the result, as the next
    length = torch.from_numpy(result.episode_length)
    on_policy = setting.algorithm.startswith("sarsa") and not h.published_sarsa

    m = _begin(setting, keys, result.status)
    _start_episode(m, torch.ones_like(m.row, dtype=torch.bool), setting.start)
    while len(m.row):
        before = m.t
        noise = Noise(setting.world_noise, m.noise_key, m.n)
        state, reward, done, m.t = _repeat(
            world, m.world, setting.actions, m.state, m.action, skip, m.t, max_steps, noise
        )
        m.n = m.n + m.t - before
        m.total = m.total + reward
        over = (done > 0.5) | (m.t >= max_steps) | ((m.train_steps > 0) & (m.n >= m.train_steps))
        # a time limit counts as terminal on real dynamics (published behaviour), never on an SE
        nonterminal = (done < 0.5) & ((m.t < max_steps) | (synthetic or h.bootstrap_time_limit))

        action: Optional[Tensor] = None
        if on_policy:  # the action of the target is executed next, unless the episode was cut off
            action = _decide(m, state, torch.where(over, DRAWN_IN_UPDATE + m.updates, m.decisions))
        finite = _learn(m, setting, m.episode >= h.init_episodes, state, action, reward, nonterminal)
        if action is None:
            action = _decide(m, state, m.decisions)
        m.state, m.action = state, action
        m.decisions = m.decisions + (~over).long()

        over = over | ~finite  # a table does not recover from NaN or infinity
        if over.any():
            row, e = m.row[over], m.episode[over]
            length[row, e] = m.t[over].int()
            if setting.test_each:
                tested = over & finite
                test_key = rng.fold(keys[m.row[tested]], rng.TEST)
                returns, steps = _test(m.q[tested], setting, test_key, m.episode[tested] * h.test_episodes)
                m.total[tested] = returns.cumsum(1)[:, -1] / h.test_episodes  # sum would add in another order
                result.real_steps[m.row[tested].numpy()] += steps.numpy()
            logged[row, e] = m.total[over].float()
            settles = synthetic and not setting.test_each
            early = early_out(logged[row], e, m.n[over], h, settles, setting.solved_reward)
            spent = (m.train_steps > 0) & (m.n >= m.train_steps)
            stop = over & (~finite | spent | (m.episode + 1 >= h.train_episodes))
            stop[over] |= early
            m.episode = m.episode + over.long()
            if stop.any():
                _finish(m.keep(stop), setting, finite[stop], result)
                m, over = m.keep(~stop), over[~stop]
            _start_episode(m, over, setting.start)

    trained = np.flatnonzero(result.status == OK)
    q = torch.from_numpy(result.weights[trained]).unflatten(1, (-1, setting.actions))
    test_key = rng.fold(keys[trained], rng.FINAL_TEST)
    final, steps = _test(q, setting, test_key, torch.zeros(len(q), dtype=torch.int64))
    result.test_return[trained] = final.numpy()
    result.real_steps[trained] += steps.numpy()


def _begin(setting: Setting, keys: Tensor, status: np.ndarray) -> TabularMembers:
    row = torch.from_numpy(np.flatnonzero(status == OK))
    zero = torch.zeros_like(row)
    shared = len(setting.world.reward) == 1
    columns = {n: torch.from_numpy(setting.hyper[n])[row] for n in PER_MEMBER}
    shape = (len(row), setting.task.reward.shape[1] // setting.actions, setting.actions)
    return TabularMembers(
        row=row,
        world=zero if shared else row * setting.world.reward.shape[1],
        key=rng.fold(keys[row], rng.EXPLORE),
        noise_key=rng.fold(keys[row], rng.REWARD),
        alpha=columns["alpha"].float(),
        gamma=columns["gamma"].float(),
        beta=columns["beta"].double(),
        eps=columns["eps_init"].double(),
        eps_min=columns["eps_min"].double(),
        eps_decay=columns["eps_decay"].double(),
        batch_size=columns["batch_size"],
        train_steps=columns["train_steps"],
        q=torch.zeros(shape),
        visits=torch.zeros(shape, dtype=torch.int64),
        state=zero,
        action=zero,
        t=zero,
        n=zero,
        decisions=zero,
        updates=zero,
        episode=zero,
        total=zero.double(),
    )


def _start_episode(m: TabularMembers, new: Tensor, start: int) -> None:
    """Reset the members where new [L] is true and draw their first action."""
    decayed = torch.maximum(m.eps * m.eps_decay, m.eps_min)
    m.eps = torch.where(new & (m.episode > 0), decayed, m.eps)
    m.state = torch.where(new, start, m.state)
    m.t = torch.where(new, 0, m.t)
    m.total = torch.where(new, 0.0, m.total)
    m.action = torch.where(new, _decide(m, m.state, m.decisions), m.action)
    m.decisions = m.decisions + new.long()


def _decide(m: TabularMembers, state: Tensor, counter: Tensor) -> Tensor:
    """Epsilon-greedy actions [L]; ties go to the first action."""
    q = _rows(m.q, state)
    draw = rng.bits(m.key, counter)
    explore = (draw >> 32) & LOW < (m.eps * 2**32).ceil().long()
    return torch.where(explore, (draw & LOW) * q.shape[1] >> 32, q.argmax(1))


def _rows(table: Tensor, state: Tensor) -> Tensor:
    """Rows of a table for each state: table [L, S, A], state [L] -> [L, A]."""
    return table[torch.arange(len(state)), state]


def _repeat(
    tables: Tables,
    offset: Tensor,
    actions: int,
    state: Tensor,
    action: Tensor,
    skip: int,
    t: Tensor,
    max_steps: int,
    noise: Noise,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Up to ``skip`` steps with one action, until done or the time limit -> state, summed reward, done, time; [L]."""
    total = torch.zeros(len(state))
    counter = noise.counter
    done = torch.zeros(len(state))
    live = torch.ones_like(state, dtype=torch.bool)
    for _ in range(skip):
        i = offset + state * actions + action
        reward = tables.reward[i]
        if noise.scale > 0:
            reward = reward + noise.scale * rng.normal(noise.key, counter)
        counter = counter + 1
        total = torch.where(live, total + reward, total)
        done = torch.where(live, tables.done[i], done)
        state = torch.where(live, tables.next_state[i].long(), state)
        t = t + live.long()
        live = live & (done <= 0.5) & (t < max_steps)
    return state, total, done, t


def _learn(
    m: TabularMembers,
    setting: Setting,
    learns: Tensor,
    state: Tensor,
    action: Optional[Tensor],
    reward: Tensor,
    nonterminal: Tensor,
) -> Tensor:
    """Update Q(s, a) of the members where learns [L] is true, batch_size times -> bool [L]: Q(s, a) is finite.

    state, action: the next state and, on-policy, the next action; None: SARSA draws one for each update.
    """
    at = torch.arange(len(state)), m.state, m.action
    for j in range(int(m.batch_size.max())):
        update = learns & (m.batch_size > j)
        r = reward
        if setting.algorithm.endswith("_cb"):  # r += beta / sqrt(n(s, a))
            m.visits[at] += update.long()
            r = r + (m.beta / (m.visits[at].double().sqrt() + 1e-9)).float()
        if setting.algorithm.startswith("ql"):
            target = q_learning.target(_rows(m.q, state), r, nonterminal, m.gamma)
        else:
            drawn = _decide(m, state, DRAWN_IN_UPDATE + m.updates) if action is None else action
            target = sarsa.target(_rows(m.q, state), drawn, r, nonterminal, m.gamma)
        q = m.q[at]
        m.q[at] = torch.where(update, q + m.alpha * (target - q), q)  # Q += alpha (target - Q)
        m.updates = m.updates + update.long()
    return torch.isfinite(m.q[at])


def _test(q: Tensor, setting: Setting, key: Tensor, first: Tensor) -> Tuple[Tensor, Tensor]:
    """T greedy episodes on the real task -> returns float64 [L, T], steps of all T int64 [L].

    q: [L, S, A]; key, first: int64 [L]. Step t of episode j takes draw (first + j) * max_steps + t of the key's noise.
    """
    L, T, skip = len(q), setting.hyper.section.test_episodes, setting.hyper.section.same_action_num
    member = torch.arange(L).repeat_interleave(T)
    task = Tables(*(torch.from_numpy(t[0]) for t in setting.task))
    before = (first[:, None] + torch.arange(T)).flatten() * setting.max_steps
    noise_key = rng.fold(key, rng.REWARD)[member]
    state = torch.full((L * T,), setting.start)
    zero = t = torch.zeros_like(state)
    total = zero.double()
    live = torch.ones_like(state, dtype=torch.bool)
    while live.any():
        action = q[member, state].argmax(1)
        noise = Noise(setting.task_noise, noise_key, before + t)
        to, reward, done, later = _repeat(task, zero, setting.actions, state, action, skip, t, setting.max_steps, noise)
        state, t = torch.where(live, to, state), torch.where(live, later, t)
        total = torch.where(live, total + reward, total)
        live = live & (done <= 0.5) & (t < setting.max_steps)
    return total.view(L, T), t.view(L, T).sum(1)


def _finish(m: TabularMembers, setting: Setting, finite: Tensor, result: TrainResult) -> None:
    """Stores the results of members whose training has ended."""
    row = m.row.numpy()
    result.train_steps[row] = m.n.numpy()
    result.updates[row] = m.updates.numpy()
    result.episodes[row] = m.episode.numpy()
    result.weights[row] = m.q.flatten(1).numpy()
    result.status[row[~finite.numpy()]] = AGENT_DIVERGED
    if not setting.synthetic:
        result.real_steps[row] += m.n.numpy()
