"""Training by the compiled learners in worlds whose steps Python takes: a user's own environment, or any task without a
compiled twin. The PyTorch twin is ``agents/off_policy/training.py``.

All members take each decision together, and one batched call steps their worlds. What a learner does for a decision is
one call of ``advance`` for each member: remember the last transition, learn from a sample of them, choose the next
action. A member with two layers of 64 units and batches of 64 takes 0.1 ms for that, PyTorch's many small operations
1.5 ms.

Axes: L members still in training, N = 1 environment each, F observation features, A actions.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Tuple, Type

import numpy as np
import torch
from numba import njit
from torch import Tensor

from envolve.agents.common.compiling import STEPS
from envolve.agents.common.denormals import without_denormals
from envolve.agents.common.job import Job
from envolve.agents.common.population import initial_weights, nets_of, size
from envolve.agents.common.replay import capacity
from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED, TrainResult
from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.building import ahead
from envolve.agents.kernels.common.members import settings
from envolve.agents.kernels.common.steps import Taken
from envolve.agents.kernels.common.stepwise import Stepwise
from envolve.agents.kernels.off_policy.population import TWINS
from envolve.agents.kernels.off_policy.training import Batch, OffPolicySettings, begin_episode, explore, learn, sample
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.agents.off_policy.depths import test_trained
from envolve.core import rng

DECISION, UPDATE, EPISODE, STORES, LEARNS, BEGINS, ACTS = range(7)  # in a member's ``turn``


class Stepper(NamedTuple):
    """What ``advance`` needs of one member."""

    agent: Any
    c: OffPolicySettings
    rows: np.ndarray  # float32 [capacity, 2 F + Aw + 2], the replay buffer
    batch: Batch
    action: np.ndarray  # float32 [Aw], the newest, as the replay stores it
    keys: np.ndarray  # uint64 [3], of the streams EXPLORE, REPLAY and UPDATE


@njit(**JIT_UNCOUNTED)
def advance(m, seen, turn):
    """One decision of a member -> the index of a discrete action, else 0.

    seen: float32 [3 F + 2], the observation at which m.action was chosen, the one that it led to, the one to act at,
    reward and done. turn: int64 [7], the number of the decision that was taken, or is to be taken if none was; that of
    the updates so far; that of the episode to act in; then whether to store the transition, to learn, whether the
    episode begins, and whether to act.
    """
    agent, c, rows, batch = m.agent, m.c, m.rows, m.batch
    F, Aw, decision = (seen.shape[0] - 2) // 3, m.action.shape[0], turn[DECISION]
    if turn[STORES]:
        row = rows[decision % c.capacity]
        for f in range(2 * F):
            row[f] = seen[f]
        for a in range(Aw):
            row[2 * F + a] = m.action[a]
        row[2 * F + Aw], row[2 * F + Aw + 1] = seen[3 * F], seen[3 * F + 1]
        decision += 1
        if turn[LEARNS]:
            sample(rows, min(decision, c.capacity), m.keys[1], turn[UPDATE], c, batch)
            learn(agent, batch, m.keys[2], decision - 1, turn[UPDATE] + 1)
    if turn[BEGINS]:
        begin_episode(agent, turn[EPISODE])
    if turn[ACTS]:
        return explore(agent, m.keys[0], decision, turn[EPISODE], seen[2 * F : 3 * F], m.action)
    return 0


class OffPolicy(Stepwise):
    """Training of all members of a job. Arrays are of those still in training, [L]."""

    own = ("action", "index", "seen", "turn", "t", "total")

    def __init__(self, algorithm: Type[Algorithm], twin: Any, job: Job) -> None:
        """twin: the algorithm's class among the kernels."""
        task = job.task
        nets = nets_of(algorithm, task, job.hyper)
        weights = initial_weights(nets, job.keys)

        def tests(members: np.ndarray, stream: int, first: int) -> Tuple[np.ndarray, np.ndarray]:
            hyper, trained = job.hyper.take(members), weights[members]
            return test_trained(algorithm, task, hyper, trained, job.keys[members], stream, first)

        super().__init__(job, weights, tests)
        F, columns, P = task.observation_size, twin.columns(task), len(job.keys)
        keys = torch.as_tensor(job.keys)
        streams = [rng.fold(keys, stream) for stream in (rng.EXPLORE, rng.REPLAY, rng.UPDATE)]
        unsigned = torch.stack(streams, 1).numpy().view(np.uint64)
        self.action, self.index = np.zeros((P, columns), np.float32), np.zeros(P, np.int64)
        self.steppers: List[Stepper] = []
        for i, rows in enumerate(capacity(job.hyper, task.max_steps).tolist()):
            own: Any = job.hyper.member(i)
            c = settings(OffPolicySettings, task, own, test_each=False, capacity=rows)
            agent = twin.create(task, own, weights[i, : size(nets[i])])
            memory = np.empty((rows, 2 * F + columns + 2), np.float32)
            batch = Batch.create(F + columns, own.batch_size)
            self.steppers.append(Stepper(agent, c, memory, batch, self.action[i], unsigned[i]))
        self.seen, self.turn = np.zeros((P, 3 * F + 2), np.float32), np.zeros((P, 7), np.int64)
        self.t, self.total = np.zeros(P, np.int64), np.zeros(P)

    def drop(self, stays: np.ndarray) -> None:
        super().drop(stays)
        left = [self.steppers[k] for k in np.flatnonzero(stays).tolist()]
        self.steppers = [stepper._replace(action=action) for stepper, action in zip(left, self.action)]

    # ---------------------------------------------------------------------------------------------------- the loop

    def train(self) -> None:
        F = self.task.observation_size
        state = self._begin(np.arange(len(self.member)))
        self._act_first(state, np.arange(len(self.member)))
        while len(self.member):
            seen, turn = self.seen, self.turn
            seen[:, :F] = seen[:, 2 * F : 3 * F]
            state, taken = self._take(state)
            lost = taken.failed
            self.n += taken.t - self.t
            self.t = taken.t
            self.total += taken.reward / self.reward_scale
            seen[:, F : 2 * F] = seen[:, 2 * F : 3 * F] = self.steps.observe(state)[:, 0]
            seen[:, 3 * F], seen[:, 3 * F + 1] = taken.reward, self._done(taken)
            ended = taken.over | (self.n >= self.budget)
            turn[:, STORES], turn[:, BEGINS], turn[:, ACTS] = ~lost, 0, ~ended
            turn[:, LEARNS] = ~lost & (turn[:, EPISODE] >= self.s.init_episodes)
            self._advance(range(len(turn)))
            turn[:, DECISION] += 1
            turn[:, UPDATE] += turn[:, LEARNS]
            if ended.any():
                state = self._end_episodes(state, ended, lost)

    @without_denormals()
    def _advance(self, which: Iterable[int]) -> None:
        for k in which:
            self.index[k] = advance(self.steppers[k], self.seen[k], self.turn[k])

    def _done(self, taken: Taken) -> np.ndarray:
        """What the replay stores as done, [L]: a time limit is an end where values are not bootstrapped there."""
        if self.job.kind == "se" or self.s.bootstrap_time_limit:
            return taken.done
        return np.where(taken.cut | (taken.t >= self.task.max_steps), np.float32(1), taken.done)

    def _take(self, state: Tensor) -> Tuple[Tensor, Taken]:
        """Takes the actions -> state [L, 1, S], and what they have led to, [L] each."""
        action, t = self.action if self.task.action_size else self.index, self.t[:, None]
        state, taken = self.steps.take(state, action[:, None], t, self.n[:, None] - t)
        return state, Taken(*(part[:, 0] for part in taken))

    # ------------------------------------------------------------------------------------------------- the episodes

    def _begin(self, which: np.ndarray) -> Tensor:
        """State of new episodes of the members at these places, [K, 1, S]."""
        return self.steps.reset(which, self.turn[which, EPISODE])

    def _act_first(self, state: Tensor, which: np.ndarray) -> None:
        """The first actions in the episodes that have begun at these places. state: of all."""
        F = self.task.observation_size
        self.seen[which, 2 * F : 3 * F] = self.steps.observe(state)[which, 0]
        self.turn[which, STORES] = self.turn[which, LEARNS] = 0
        self.turn[which, BEGINS] = self.turn[which, ACTS] = 1
        self._advance(which.tolist())

    def _end_episodes(self, state: Tensor, ended: np.ndarray, lost: np.ndarray) -> Tensor:
        """Logs the episodes that ended, begins others, and drops the members that have finished -> state. ended, lost:
        bool [L]."""
        stays = np.ones(len(ended), np.bool_)
        for k in np.flatnonzero(ended).tolist():
            self.result.episode_length[self.member[k], self.turn[k, EPISODE]] = self.t[k]
            status, stops = self._stops(k, bool(lost[k]))
            if stops:
                stays[k] = False
                episodes, updates = int(self.turn[k, EPISODE]) + 1, int(self.turn[k, UPDATE])
                self.finish(k, episodes, updates, status, state[k] if lost[k] else None)
            self.release(state[k])
        again = np.flatnonzero(ended & stays)
        if len(again):
            self.turn[again, EPISODE] += 1
            self.t[again] = self.total[again] = 0
            state[again] = self._begin(again).to(state.dtype)
        if not stays.all():
            self.drop(stays)
            state, again = state[stays], again - np.cumsum(~stays)[again]
        if len(again):
            self._act_first(state, again)
        return state

    def _stops(self, k: int, lost: bool) -> Tuple[int, bool]:
        """Status of the member at place k, and whether it has finished with its episode, which is logged."""
        if lost:
            return WORLD_DIVERGED, True
        if not np.isfinite(self.result.weights[self.member[k]]).all():
            return AGENT_DIVERGED, True
        e = int(self.turn[k, EPISODE])
        stops = self.log_episode(k, e, self.total[k]) or e + 1 >= self.s.train_episodes
        return OK, stops or bool(self.n[k] >= self.budget[k])


def train_population(algorithm: Type[Algorithm], job: Job) -> TrainResult:
    """As ``envolve.agents.off_policy.depths.train_population``, on the CPU."""
    name, twin = TWINS[algorithm]
    ahead.compiled_ahead(name + STEPS)
    run = OffPolicy(algorithm, twin, job)
    run.train()
    return run.tested()


def parts(name: str) -> Dict[str, Callable[[], None]]:
    """As ``building/shortest.py`` asks for them."""
    return {"steps": partial(_shortest, name)}


def _shortest(name: str) -> None:
    """Whatever compiles the kernels of ``name``, a learner's with ``STEPS`` behind it."""
    from envolve.agents.common.hyper import draw
    from envolve.agents.common.learners import CONTINUOUS, LEARNERS
    from envolve.agents.train import algorithm
    from envolve.envs.section import EnvSection
    from envolve.envs.task import make_task

    name = name[: -len(STEPS)]
    task = make_task("Pendulum-v0" if LEARNERS[name].actions == CONTINUOUS else "CartPole-v0", max_steps=2)
    smallest: Dict[str, Any] = {"hidden_size": 1, "hidden_layer": 1, "batch_size": 1}
    section = LEARNERS[name].section(train_episodes=2, init_episodes=0, test_episodes=1, **smallest)
    keys = np.zeros(1, np.int64)
    train_population(algorithm(name), Job(task, "real", EnvSection(), torch.zeros(1, 1), draw(section, keys), keys))
