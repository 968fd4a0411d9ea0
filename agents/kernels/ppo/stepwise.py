"""PPO by compiled kernels in worlds whose steps Python takes: a user's own environment, or any task without a compiled
twin. The PyTorch twin is ``agents/ppo/training.py``.

One call of ``advance`` per decision and member keeps what the last actions led to, learns from a rollout that is full,
and chooses the next actions. One batched call steps the environments of all members.

Axes: P members, L of them still in training, N environments each, F observation features, A actions.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Tuple, cast

import numpy as np
import torch
from numba import njit
from torch import Tensor

from envolve.agents.common.compiling import STEPS
from envolve.agents.common.denormals import without_denormals
from envolve.agents.common.job import Job
from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED, TrainResult
from envolve.agents.common.sections import PPOSection
from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.building import ahead
from envolve.agents.kernels.common.stepwise import Stepwise
from envolve.agents.kernels.ppo.policy import actor
from envolve.agents.kernels.ppo.population import create
from envolve.agents.kernels.ppo.rollout import keep, pick
from envolve.agents.kernels.ppo.training import PPO, PPOSettings
from envolve.agents.kernels.ppo.update import learn
from envolve.agents.ppo.policy import initial_weights, networks
from envolve.agents.ppo.training import check, test_trained
from envolve.core import rng

REWARD, TERMINATED, OVER, SEEN = range(4)  # columns of ``Stepper.seen`` behind the two observations, and their number


class Stepper(NamedTuple):
    """What ``advance`` needs of one member."""

    agent: PPO
    c: PPOSettings
    keys: np.ndarray  # uint64 [2], of the streams EXPLORE and REPLAY
    seen: np.ndarray  # float32 [N, 2 F + SEEN]: what the last action led to, the observation to act at, the columns
    chosen: np.ndarray  # int64 [N], discrete actions for the world
    sent: np.ndarray  # float32 [N, A], continuous ones


@njit(**JIT_UNCOUNTED)
def advance(m, decision, ends, before):
    """Decision number ``decision`` of a member, from 0 -> states in ``rollout.last``.

    ends: how many there were before; before: environment steps until the last decision's rollout began.
    """
    agent, c, envs, policy = m.agent, m.c, m.agent.envs, m.agent.policy
    N, T, F = c.num_envs, c.rollout_steps, (m.seen.shape[1] - SEEN) // 2
    if decision > 0:
        t = (decision - 1) % T
        for n in range(N):
            seen = m.seen[n]
            paid = seen[2 * F :]
            terminated, over = paid[TERMINATED] > 0, paid[OVER] > 0
            ends = keep(agent.rollout, seen[:F], t * N + n, paid[REWARD], terminated, over, t == T - 1, ends)
        if t == T - 1:
            epochs = (decision // T - 1) * c.ppo_epochs  # until now
            rate = c.lr * (1.0 - before / c.train_steps) if c.anneal_lr else c.lr
            learn(agent, c, ends, m.keys[1], epochs, epochs * c.minibatches, rate)
            ends = 0
    for n in range(N):
        for f in range(F):
            envs.obs[n * F + f] = m.seen[n, F + f]
    actor(policy, envs.obs, N)
    for n in range(N):
        obs, i = envs.obs[n * F : (n + 1) * F], decision % T * N + n
        m.chosen[n] = pick(policy, agent.rollout, obs, n, i, m.keys[0], decision * N + n)
        for a in range(policy.std):
            m.sent[n, a] = policy.sent[a]
    return ends


class OnPolicy(Stepwise):
    """Training of all members of a job. Arrays are of those still in training, [L, ...]."""

    own = ("seen", "chosen", "sent", "t", "total", "episode", "ends", "before")

    def __init__(self, job: Job) -> None:
        task, s = job.task, cast(PPOSection, job.hyper.section)
        check(s, job.hyper, task.max_steps)
        nets = networks(task, job.hyper)
        weights = initial_weights(task, nets, job.hyper, job.keys)

        def tests(members: np.ndarray, stream: int, first: int) -> Tuple[np.ndarray, np.ndarray]:
            trained, keys = weights[members], job.keys[members]
            return test_trained(task, job.hyper.take(members), trained, keys, stream, first)

        super().__init__(job, weights, tests)
        P, N, F = len(job.keys), self.s.num_envs, task.observation_size
        keys = torch.as_tensor(job.keys)
        streams = [rng.fold(keys, stream) for stream in (rng.EXPLORE, rng.REPLAY)]
        unsigned = torch.stack(streams, 1).numpy().view(np.uint64)
        self.seen = np.zeros((P, N, 2 * F + SEEN), np.float32)
        self.chosen, self.sent = np.zeros((P, N), np.int64), np.zeros((P, N, max(1, task.action_size)), np.float32)
        self.steppers: List[Stepper] = []
        for i in range(P):
            agent, c = create(job, i, nets[i], weights[i], test_each=False)
            self.steppers.append(Stepper(agent, c, unsigned[i], self.seen[i], self.chosen[i], self.sent[i]))
        self.t, self.total = np.zeros((P, N), np.int64), np.zeros((P, N))  # of the episodes
        self.episode, self.ends, self.before = (np.zeros(P, np.int64) for _ in range(3))
        self.decision = 0  # that comes next, of all members
        self.T = c.rollout_steps

    def drop(self, stays: np.ndarray) -> None:
        super().drop(stays)
        left = [self.steppers[k] for k in np.flatnonzero(stays).tolist()]
        arrays = zip(left, self.seen, self.chosen, self.sent)
        self.steppers = [m._replace(seen=seen, chosen=chosen, sent=sent) for m, seen, chosen, sent in arrays]

    # ---------------------------------------------------------------------------------------------------- the loop

    def train(self) -> None:
        F = self.task.observation_size
        every = np.indices(self.t.shape).reshape(2, -1)
        state = self._begin(*every).unflatten(0, self.t.shape)
        self.seen[..., F : 2 * F] = self.steps.observe(state)
        while len(self.member):
            self._advance()
            if self.decision % self.T == 0 and self.decision:
                state = self._end_rollout(state)
                if not len(self.member):
                    break
            state, over, lost = self._take(state)
            self.decision += 1
            self.seen[..., F : 2 * F] = self.seen[..., :F]
            if over.any():
                state = self._end_episodes(state, over, lost)

    @without_denormals()
    def _advance(self) -> None:
        for k, m in enumerate(self.steppers):
            self.ends[k] = advance(m, self.decision, self.ends[k], self.before[k])

    def _take(self, state: Tensor) -> Tuple[Tensor, np.ndarray, np.ndarray]:
        """Takes the actions -> state [L, N, S], over [L, N], members whose world failed [L]."""
        s, F = self.s, self.task.observation_size
        number = self.decision * s.num_envs + np.arange(s.num_envs)  # of the decisions
        action = self.sent if self.task.action_size else self.chosen
        state, taken = self.steps.take(state, action, self.t, number * s.same_action_num - self.t)
        self.n += (taken.t - self.t).sum(1)
        self.t = taken.t
        self.total += taken.reward / self.reward_scale
        self.seen[..., :F] = self.steps.observe(state)
        self.seen[..., 2 * F + REWARD] = taken.reward
        self.seen[..., 2 * F + TERMINATED] = taken.done > 0.5 if s.bootstrap_time_limit else taken.over
        self.seen[..., 2 * F + OVER] = taken.over
        return state, taken.over, np.asarray(taken.failed.any(1))

    # ------------------------------------------------------------------------------------- episodes and rollouts end

    def _begin(self, members: np.ndarray, envs: np.ndarray) -> Tensor:
        """States of new episodes at these places, [K, S], which the next decision is the first of."""
        return self.steps.reset(members, self.decision * self.s.num_envs + envs)[:, 0]

    def _end_episodes(self, state: Tensor, over: np.ndarray, lost: np.ndarray) -> Tensor:
        """Logs the episodes that ended, begins others, and drops the members that have finished -> state."""
        F, stays = self.task.observation_size, ~lost
        for k in np.flatnonzero(over.any(1)).tolist():
            stops = not lost[k] and self._log(k, np.flatnonzero(over[k]).tolist())
            if lost[k] or stops:
                stays[k] = False
                status, failed = (WORLD_DIVERGED, state[k]) if lost[k] else (OK, None)
                self.finish(k, int(self.episode[k]), self._updates(self.decision - 1), status, failed)
                self.release(state[k])
        self.release(state[torch.from_numpy(over & stays[:, None])])
        again = np.nonzero(over & stays[:, None])
        if len(again[0]):
            self.t[again], self.total[again] = 0, 0.0
            state[again] = self._begin(*again).to(state.dtype)
            self.seen[again + (slice(F, 2 * F),)] = self.steps.observe(state)[again]
        if not stays.all():
            self.drop(stays)
            state = state[stays]
        return state

    def _log(self, k: int, ended: List[int]) -> bool:
        """Logs what ended in these environments of the member at place k -> whether training ends there."""
        for n in ended:
            e = int(self.episode[k])
            self.result.episode_length[self.member[k], e] = self.t[k, n]
            self.episode[k] += 1
            if self.log_episode(k, e, self.total[k, n]):
                return True
            if self.episode[k] == self.s.train_episodes:
                return self.decision % self.T > 0  # a complete rollout is learned from
        return False

    def _end_rollout(self, state: Tensor) -> Tensor:
        """After the members have learned from a rollout: drops those that have finished -> state."""
        self.before = self.n.copy()
        fine = np.isfinite(self.result.weights[self.member]).all(1)
        stays = fine & (self.n < self.budget) & (self.episode < self.s.train_episodes)
        for k in np.flatnonzero(~stays).tolist():
            status = OK if fine[k] else AGENT_DIVERGED
            self.finish(k, int(self.episode[k]), self._updates(self.decision), status)
            self.release(state[k])
        if not stays.all():
            self.drop(stays)
            state = state[stays]
        return state

    def _updates(self, decisions: int) -> int:
        """Number of updates that a member has made after ``decisions``."""
        return decisions // self.T * self.s.ppo_epochs * self.s.minibatches


def train_population(job: Job) -> TrainResult:
    """As ``envolve.agents.ppo.training.train_population``, on the CPU."""
    ahead.compiled_ahead("ppo" + STEPS)
    run = OnPolicy(job)
    run.train()
    return run.tested()


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """As ``building/shortest.py`` asks for them."""
    return {"steps": _shortest}


def _shortest() -> None:
    """Whatever compiles the kernels."""
    from envolve.agents.common.hyper import draw
    from envolve.envs.section import EnvSection
    from envolve.envs.task import make_task

    smallest: Dict[str, Any] = {"hidden_size": 1, "hidden_layer": 1, "num_envs": 1, "rollout_steps": 2, "ppo_epochs": 1}
    section = PPOSection(train_episodes=2, init_episodes=0, test_episodes=1, **smallest)
    keys, task = np.zeros(1, np.int64), make_task("CartPole-v0", max_steps=2)
    train_population(Job(task, "real", EnvSection(), torch.zeros(1, 1), draw(section, keys), keys))
