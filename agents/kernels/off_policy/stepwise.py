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
from typing import Any, Callable, Dict, List, NamedTuple, Tuple, Type

import numpy as np
import torch
from numba import njit
from torch import Tensor

from envolve.agents.common.denormals import without_denormals
from envolve.agents.common.early_out import early_out
from envolve.agents.common.hyper import budgets
from envolve.agents.common.job import Job
from envolve.agents.common.population import initial_weights, nets_of, size
from envolve.agents.common.replay import capacity
from envolve.agents.common.result import AGENT_DIVERGED, OK, WORLD_DIVERGED, TrainResult
from envolve.agents.common.rollout import make_world, repeat, reset_uniforms, reward_noise
from envolve.agents.kernels import JIT_UNCOUNTED
from envolve.agents.kernels.building import ahead
from envolve.agents.kernels.common.members import settings
from envolve.agents.kernels.off_policy.population import STEPS, TWINS
from envolve.agents.kernels.off_policy.training import (
    Batch,
    OffPolicySettings,
    begin_episode,
    explore,
    learn,
    sample,
)
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


class Stepwise:
    """Training of all members of a job."""

    def __init__(self, algorithm: Type[Algorithm], twin: Any, job: Job) -> None:
        """twin: the algorithm's class among the kernels."""
        task, self.s = job.task, job.hyper.section
        nets = nets_of(algorithm, task, job.hyper)
        weights = initial_weights(nets, job.keys)
        self.result = TrainResult.before_training(weights, self.s.train_episodes, self.s.test_episodes)
        self.algorithm, self.job, self.task = algorithm, job, task
        F, self.columns, P = task.observation_size, twin.columns(task), len(job.keys)
        keys = torch.as_tensor(job.keys)
        streams = [rng.fold(keys, stream) for stream in (rng.EXPLORE, rng.REPLAY, rng.UPDATE)]
        unsigned = torch.stack(streams, 1).numpy().view(np.uint64)
        self.actions = np.zeros((P, self.columns), np.float32)
        self.steppers: List[Stepper] = []
        for i, rows in enumerate(capacity(job.hyper, task.max_steps).tolist()):
            own: Any = job.hyper.member(i)
            c = settings(OffPolicySettings, task, own, test_each=False, capacity=rows)
            agent = twin.create(task, own, weights[i, : size(nets[i])])
            memory = np.empty((rows, 2 * F + self.columns + 2), np.float32)
            batch = Batch.create(F + self.columns, own.batch_size)
            self.steppers.append(Stepper(agent, c, memory, batch, self.actions[i], unsigned[i]))
        self.seen, self.turn = np.zeros((P, 3 * F + 2), np.float32), np.zeros((P, 7), np.int64)
        self.index = np.zeros(P, np.int64)
        self.reset_keys, self.reward_keys = rng.fold(keys, rng.RESET), rng.fold(keys, rng.REWARD)
        self.budget = budgets(job.hyper, keys.device).numpy()
        self.n, self.t, self.total = np.zeros(P, np.int64), np.zeros(P, np.int64), np.zeros(P)
        self.logged = torch.from_numpy(self.result.episode_return)
        self._of_live(np.arange(P))

    def _of_live(self, live: np.ndarray) -> None:
        """live: int64 [L], the members still in training."""
        self.live, job = live, self.job
        gamma = torch.as_tensor(job.hyper["gamma"][live])
        self.world = make_world(job.kind, self.task, job.section, job.worlds[live], gamma)

    # ---------------------------------------------------------------------------------------------------- the loop

    def train(self) -> None:
        F, turn, seen = self.task.observation_size, self.turn, self.seen
        state = self._reset(self.live)
        seen[:, 2 * F : 3 * F] = self.world.observe(state)[:, 0].numpy()
        turn[:, [BEGINS, ACTS]] = 1
        self._advance(self.live)
        while len(self.live):
            live, before = self.live, self.t[self.live]
            seen[live, :F] = seen[live, 2 * F : 3 * F]
            state, reward, done, lost, over = self._take(state)
            self.n[live] += self.t[live] - before
            seen[live, F : 2 * F] = seen[live, 2 * F : 3 * F] = self.world.observe(state)[:, 0].numpy()
            seen[live, 3 * F], seen[live, 3 * F + 1] = reward, done
            self.total[live] += reward / self.world.reward_scale
            ended = over | (self.n[live] >= self.budget[live])
            turn[live, STORES], turn[live, BEGINS], turn[live, ACTS] = ~lost, 0, ~ended
            turn[live, LEARNS] = ~lost & (turn[live, EPISODE] >= self.s.init_episodes)
            self._advance(live)
            turn[live, DECISION] += 1
            turn[live, UPDATE] += turn[live, LEARNS]
            if ended.any():
                state = self._end_episodes(state, ended, lost)

    def _take(self, state: Tensor) -> Tuple[Tensor, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Takes the actions -> state [L, 1, S], reward, done, failed, over [L]. One step without noise is ``repeat``
        written out: its small operations take as long as all else."""
        world, s, most, live = self.world, self.s, self.task.max_steps, self.live
        if s.same_action_num == 1 and not world.reward_noise:
            state, *of_step = world.step(state, self._chosen(live))
            reward, done, failed = (x[:, 0].numpy() for x in of_step)
            self.t[live] += 1
            over = (done > 0.5) | failed | (self.t[live] >= most)
        else:
            t = torch.from_numpy(self.t[live])[:, None]
            noise = partial(self._noise, torch.from_numpy(self.n[live])[:, None] - t) if world.reward_noise else None
            state, *of_step = repeat(world, state, self._chosen(live), t, s.same_action_num, most, noise)
            reward, done, failed, self.t[live], over = (x[:, 0].numpy() for x in of_step)
        own = world.truncated(state)
        cut = np.zeros(len(live), np.bool_) if own is None else own[:, 0].numpy()
        if self.job.kind != "se" and not s.bootstrap_time_limit:
            done = np.where(cut | (self.t[live] >= most), np.float32(1), done)
        return state, reward, done, failed, over | cut

    @without_denormals()
    def _advance(self, members: np.ndarray) -> None:
        for i in members.tolist():
            self.index[i] = advance(self.steppers[i], self.seen[i], self.turn[i])

    def _chosen(self, live: np.ndarray) -> Tensor:
        """Actions for the worlds: int64 [L, 1] or float32 [L, 1, A]."""
        if self.task.action_size:
            return torch.from_numpy(self.actions[live])[:, None]
        return torch.from_numpy(self.index[live])[:, None]

    def _noise(self, before: Tensor, t: Tensor) -> Tensor:
        return reward_noise(self.world, self.reward_keys[self.live], before + t)

    def _reset(self, members: np.ndarray) -> Tensor:
        """State of new episodes of these members, [K, 1, S]."""
        R = self.world.reset_uniforms
        first = torch.from_numpy(self.turn[members, EPISODE] * R)[:, None]
        return self.world.reset(reset_uniforms(self.reset_keys[members], first, R), torch.from_numpy(self._at(members)))

    def _at(self, members: np.ndarray) -> np.ndarray:
        """Where members stand among the live ones."""
        return np.searchsorted(self.live, members)

    # ------------------------------------------------------------------------------------------------- the episodes

    def _end_episodes(self, state: Tensor, ended: np.ndarray, lost: np.ndarray) -> Tensor:
        """Logs the episodes that ended, resets, and drops the members that have finished -> state. ended, lost: bool
        [L]."""
        r, F, real = self.result, self.task.observation_size, self.job.kind != "se"
        stays = np.ones(len(self.live), np.bool_)
        for at in np.flatnonzero(ended).tolist():
            i, e = int(self.live[at]), int(self.turn[self.live[at], EPISODE])
            r.episode_length[i, e] = self.t[i]
            stop = self._stops(i, e, bool(lost[at]))
            if stop:
                stays[at] = False
                r.episodes[i], r.train_steps[i], r.updates[i] = e + 1, self.n[i], self.turn[i, UPDATE]
                r.real_steps[i] += self.n[i] * real
                if real and lost[at]:
                    r.complaints[i] = self.task.complaint(state[at])
            if real:
                self.task.release(state[at])
        goes_on = ended & stays
        members = self.live[goes_on]
        if len(members):
            self.turn[members, EPISODE] += 1
            state[goes_on] = self._reset(members).to(state.dtype)
            self.t[members] = self.total[members] = 0
        if not stays.all():
            self._of_live(self.live[stays])
            state = state[stays]
        if len(members):
            self.seen[members, 2 * F : 3 * F] = self.world.observe(state)[:, 0].numpy()[self._at(members)]
            self.turn[members, STORES] = self.turn[members, LEARNS] = 0
            self.turn[members, BEGINS] = self.turn[members, ACTS] = 1
            self._advance(members)
        return state

    def _stops(self, i: int, e: int, lost: bool) -> bool:
        """Whether member i has finished with its episode e, which is logged."""
        r, s = self.result, self.s
        r.status[i] = WORLD_DIVERGED if lost else OK if np.isfinite(r.weights[i]).all() else AGENT_DIVERGED
        if r.status[i] != OK:
            return True
        if self.job.test_each:
            tests = self._tested(np.array([i]), rng.TEST, e * s.test_episodes)
            self.total[i], steps = tests[0].mean(), tests[1]
            r.real_steps[i] += int(steps[0])
        r.episode_return[i, e] = self.total[i]
        settles = self.job.kind == "se" and not self.job.test_each
        here = torch.tensor([e]), torch.tensor([int(self.n[i])])
        stop = early_out(self.logged[i : i + 1], *here, s, settles, self.task.solved_reward)
        return bool(stop[0]) or self.n[i] >= self.budget[i] or e + 1 >= s.train_episodes

    def _tested(self, members: np.ndarray, stream: int, first: int) -> Tuple[np.ndarray, np.ndarray]:
        job = self.job
        hyper, weights = job.hyper.take(members), self.result.weights[members]
        return test_trained(self.algorithm, self.task, hyper, weights, job.keys[members], stream, first)

    def final_test(self) -> None:
        r = self.result
        fine = np.flatnonzero(r.status == OK)
        if len(fine):
            r.test_return[fine], steps = self._tested(fine, rng.FINAL_TEST, 0)
            r.real_steps[fine] += steps


def train_population(algorithm: Type[Algorithm], job: Job) -> TrainResult:
    """As ``envolve.agents.off_policy.depths.train_population``, on the CPU."""
    name, twin = TWINS[algorithm]
    ahead.compiled_ahead(name + STEPS)
    run = Stepwise(algorithm, twin, job)
    run.train()
    run.final_test()
    return run.result


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
