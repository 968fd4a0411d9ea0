"""The loop that trains off-policy agents: DDQN, Dueling DDQN, TD3, discrete TD3, SAC. ``depths.py`` calls it.

``OffPolicy`` trains one agent per member in its world and tests it on the real task. All members take each decision
together: one batched call acts, one steps the worlds, one updates every network. Episodes end member by member, and so
does training; the finished are dropped from the batch. A member's result depends on its key, its world and its
hyperparameters only. Its compiled twins are ``training.py`` of ``agents/kernels/off_policy/`` and ``stepwise.py``
there, for steps that Python takes.

Axes: L members still in training, N = 1 environment each, B minibatch, F observation features, D parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from envolve.agents.common import torch_compile
from envolve.agents.common.cuda_graph import Graphs
from envolve.agents.common.denormals import without_denormals
from envolve.agents.common.early_out import early_out
from envolve.agents.common.hyper import budgets, column
from envolve.agents.common.icm import ICM
from envolve.agents.common.job import Job
from envolve.agents.common.replay import Replay, capacity
from envolve.agents.common.result import AGENT_DIVERGED, WORLD_DIVERGED
from envolve.agents.common.rollout import (
    capturable,
    final_test,
    make_world,
    repeat,
    reset_uniforms,
    reward_noise,
    test_episodes,
)
from envolve.agents.off_policy.algorithm import Algorithm, Rows
from envolve.core import rng

BLOCK = 32  # decisions between two looks at how many members are still in training


@dataclass
class OffPolicyMembers(Rows):
    """Members still in training: fields [L], int64 unless noted."""

    row: Tensor  # index in the group
    world: Tensor  # float32 [L, W], parameters of their worlds
    explore: Tensor  # keys of the random streams
    replay: Tensor
    reset: Tensor
    test: Tensor
    noise: Tensor
    reward: Tensor
    sample_weight: Tensor  # float32 [L, B], 1 / batch_size for the first batch_size samples and 0 for the rest
    budget: Tensor  # environment steps
    state: Tensor  # [L, 1, S], on the device where the task steps
    t: Tensor  # environment steps in this episode
    n: Tensor  # in all episodes
    total: Tensor  # float64, this episode's return
    episode: Tensor
    updates: Tensor
    live: Tensor  # bool; false: finished, not yet dropped


class OffPolicy:
    """Training of members with networks of the same depth."""

    def __init__(
        self,
        job: Job,
        algorithm: Algorithm,
        icm: Optional[ICM] = None,
        cuda_graph: bool = False,
        torch_compiled: bool = False,
    ) -> None:
        """algorithm: of the job's members, on the device to train on; torch_compiled: as of
        ``depths.train_population``."""
        task, hyper, device = job.task, job.hyper, algorithm.rows.params.device
        keys = torch.as_tensor(job.keys, device=device)
        self.task, self.kind, self.section, self.test_each = task, job.kind, job.section, job.test_each
        self.algorithm, self.icm, self.keys, self.s = algorithm, icm, keys, hyper.section
        P, E = len(keys), hyper.section.train_episodes
        zero = torch.zeros(P, dtype=torch.int64, device=device)
        batch_size = column(hyper, "batch_size", device, torch.int64)[:, None]
        used = torch.arange(int(batch_size.max()), device=device) < batch_size
        self.m = OffPolicyMembers(
            row=torch.arange(P, device=device),
            world=job.worlds.to(device),
            explore=rng.fold(keys, rng.EXPLORE),
            replay=rng.fold(keys, rng.REPLAY),
            reset=rng.fold(keys, rng.RESET),
            test=rng.fold(keys, rng.TEST),
            noise=rng.fold(keys, rng.UPDATE),
            reward=rng.fold(keys, rng.REWARD),
            sample_weight=used / batch_size,
            budget=budgets(hyper, device),
            state=zero,
            t=zero.clone(),
            n=zero.clone(),
            total=zero.double(),
            episode=zero.clone(),
            updates=zero.clone(),
            live=zero == 0,
        )
        rows = torch.as_tensor(capacity(hyper, task.max_steps), device=device)
        self.memory = Replay(rows, 2 * task.observation_size + algorithm.columns + 2)
        self.split = self.kind == "real" and task.on_host and device.type == "cuda"
        self.graphs = Graphs(self._step, cuda_graph and capturable(task, self.kind))
        self.decides, self.learns = (Graphs(f, cuda_graph and self.split) for f in (self._decide, self._learn_packed))
        self.update: Any = algorithm.update
        if torch_compiled:
            self.update = torch_compile.update_of(algorithm)
        self._of_live()
        if self.split:
            self.m.state = self.m.state.cpu()
        self.m.state = self._reset(self.m.row)
        self.learning = self.s.init_episodes == 0
        self.complaints: Dict[int, str] = {}  # what the task says of members that failed on it, by row
        self.samples: List[Tensor] = []  # draws of the coming updates, the next one last
        # what is returned, by row
        self.final = algorithm.take(self.m.row)
        self.logged = torch.full((P, E), torch.nan, device=device)
        self.length = torch.zeros((P, E), dtype=torch.int32, device=device)
        self.status, self.train_steps, self.updates, self.episodes, self.real_steps = (zero.clone() for _ in range(5))

    def _of_live(self) -> None:
        """Rebuilds everything that depends on which members are still in training."""
        self.world = make_world(self.kind, self.task, self.section, self.m.world, self.algorithm.rows.gamma[:, 0])

    def train(self) -> None:
        decision, left = 0, len(self.keys)
        while left:
            if decision % BLOCK == 0:
                if left < 0.75 * len(self.m.row):
                    self._drop_finished()
                draws = self.algorithm.draws(self.m.explore, decision, BLOCK)
            if not self.samples:
                self.samples = self._sample_draws()
            if self.memory.make_room():
                self._forget()
            # what decides which operations a step is made of: nothing else may
            variant = (self.learning, decision % self.algorithm.policy_delay == 0)
            draw = (self.samples.pop(), *(of_block[decision % BLOCK] for of_block in draws))
            failed, ended = (self._step_split if self.split else self.graphs)(variant, *draw)
            if ended.any():
                left -= self._end_episodes(ended.nonzero()[:, 0], failed)
            decision += 1

    def _sample_draws(self) -> List[Tensor]:
        """Valid until another member begins to learn: updates are counted from its first."""
        m = self.m
        return list(self.memory.draws(m.replay, m.updates, BLOCK, m.sample_weight.shape[1]).flip(0))

    def _drop_finished(self) -> None:
        alive = self.m.live.nonzero()[:, 0]
        self.m = self.m.keep(alive)
        self.memory.keep(alive)
        self.algorithm.keep(alive)
        if self.icm is not None:
            self.icm.keep(alive)
        self.samples.clear()
        self._of_live()
        self._forget()

    def _forget(self) -> None:
        """Discards what was captured, because tensors have moved."""
        for graphs in (self.graphs, self.decides, self.learns):
            graphs.forget()

    def _step(self, variant: Tuple[bool, bool], sample: Tensor, *draw: Tensor) -> Tuple[Tensor, Tensor]:
        """One decision and at most one update of each member -> failed, ended (this episode), bool [L]."""
        obs = self.world.observe(self.m.state)
        action, stored = self._decide(None, obs, *draw)
        state, seen = self._move(action, self.m.t)
        failed, ended = self._learn(variant, sample, obs, stored, *seen)
        self.m.state.copy_(state)  # after the last use of obs, which may be a view of it
        return failed, ended

    def _step_split(self, variant: Tuple[bool, bool], sample: Tensor, *draw: Tensor) -> Tuple[Tensor, Tensor]:
        """``_step`` where the agents are on a GPU and the task is not: all but the task's step are two graphs. One copy
        goes to the GPU, as launching six costs as much as the task's step."""
        obs = self.world.observe(self.m.state).to(self.keys.device)
        action, stored = self.decides(None, obs, *draw)
        self.m.state, (next_obs, *columns) = self._move(action.cpu(), self.m.t.cpu())
        packed = torch.cat((next_obs[:, 0], *(x.float() for x in columns)), dim=1)
        failed, ended = self.learns(variant, sample, obs, stored, packed.to(self.keys.device))
        return failed, ended

    def _decide(self, _: None, obs: Tensor, *draw: Tensor) -> Tuple[Tensor, Tensor]:
        """Exploring actions for the world, and as the replay memory stores them."""
        return self.algorithm.explore(obs, self.m.episode, draw)

    def _move(self, action: Tensor, t: Tensor) -> Tuple[Tensor, Tuple[Tensor, ...]]:
        """Steps the worlds -> state [L, 1, S] and observation [L, 1, F], reward, done, failed, t, over, all [L, 1].
        t: environment steps of the episode before, int64 [L]. All lie on one device."""
        most, noise = self.task.max_steps, self._noise if self.world.reward_noise else None
        state, reward, done, failed, t, over = repeat(
            self.world, self.m.state, action, t[:, None], self.s.same_action_num, most, noise
        )
        if self.kind != "se" and not self.s.bootstrap_time_limit:
            cut = self.world.truncated(state)
            cut = t >= most if cut is None else cut | (t >= most)
            done = torch.where(cut, torch.ones_like(done), done)
        return state, (self.world.observe(state), reward, done, failed, t, over)

    def _noise(self, t: Tensor) -> Tensor:
        """Random part of the reward of step t of each episode, [L, 1]."""
        before = (self.m.n - self.m.t)[:, None]  # environment steps before this episode
        return reward_noise(self.world, self.m.reward.to(t.device), before.to(t.device) + t)

    def _learn_packed(
        self, variant: Tuple[bool, bool], sample: Tensor, obs: Tensor, stored: Tensor, packed: Tensor
    ) -> Tuple[Tensor, Tensor]:
        """``_learn`` from what the world showed as numbers [L, F + 5]: t is exact below 2^24."""
        next_obs = packed[:, None, : obs.shape[2]]
        reward, done, failed, t, over = packed[:, obs.shape[2] :].split(1, dim=1)
        return self._learn(variant, sample, obs, stored, next_obs, reward, done, failed > 0, t.long(), over > 0)

    def _learn(
        self, variant: Tuple[bool, bool], sample: Tensor, obs: Tensor, stored: Tensor, *seen: Tensor
    ) -> Tuple[Tensor, Tensor]:
        """Remembers what ``_move`` has ``seen`` and makes at most one update -> failed, ended, as ``_step``."""
        m, s = self.m, self.s
        learning, actor = variant
        next_obs, reward, done, failed, t, over = seen
        self.memory.write(torch.cat((obs[:, 0], next_obs[:, 0], stored, reward, done), dim=1))
        failed, over, t = failed[:, 0], over[:, 0], t[:, 0]
        m.n += t - m.t
        m.t.copy_(t)
        m.total += reward[:, 0] if self.world.reward_scale == 1.0 else reward[:, 0] / self.world.reward_scale

        if learning:
            learns = (m.episode >= s.init_episodes) & ~failed
            batch = self.memory.sample(sample)
            weight = m.sample_weight * learns[:, None]
            m.updates += learns
            # A member that has not begun to learn has no gradient and no moments: Adam leaves it alone. One that failed
            # keeps its weights by a learning rate of 0. Updates count from 1.
            updates = m.updates.clamp(min=1)
            if self.icm is not None:
                s_now, s_next, action, reward, _ = self.algorithm.split(batch)
                self.icm.update(s_now, s_next, action, weight)
                reward += self.icm.reward(s_now, s_next, action)  # a view: batch changes
            with without_denormals():
                self.update(batch, weight, learns, updates, m.noise, actor)
        return failed, (over | (m.n >= m.budget)) & m.live

    def _end_episodes(self, i: Tensor, failed: Tensor) -> int:
        """Logs the episodes of members i, stops those that are done, resets the others. Returns how many stopped."""
        m, s, params = self.m, self.s, self.algorithm.rows.params
        row, e = m.row[i], m.episode[i]
        self.length[row, e] = m.t[i].int()
        status = torch.where(torch.isfinite(params[i]).all(1), 0, AGENT_DIVERGED)
        status = torch.where(failed[i], WORLD_DIVERGED, status)
        ok = status == 0
        if self.test_each and ok.any():
            returns, steps = tested(self.algorithm.take(i[ok]), m.test[i[ok]], e[ok] * s.test_episodes)
            m.total[i[ok]] = returns.mean(1)
            self.real_steps[row[ok]] += steps
        self.logged[row[ok], e[ok]] = m.total[i[ok]].float()
        settles = self.kind == "se" and not self.test_each
        stop = early_out(self.logged[row], e, m.n[i], s, settles, self.task.solved_reward)
        stop = stop | (m.n[i] >= m.budget[i]) | (e + 1 >= s.train_episodes) | ~ok

        last, finished = i[stop], row[stop]
        m.live[last] = False
        self.final.rows.put(finished, self.algorithm.rows, last)  # all rows: a test that explores needs schedules too
        self.updates[finished] = m.updates[last]
        self.train_steps[finished], self.episodes[finished] = m.n[last], m.episode[last] + 1
        self.status[finished] = status[stop]
        if self.kind != "se":
            self.real_steps[finished] += m.n[last]

        if self.kind != "se":
            for failing, row_of in zip(last[failed[last]].tolist(), finished[failed[last]].tolist()):
                self.complaints[row_of] = self.task.complaint(m.state[failing])
            self.task.release(self._states(last))

        i = i[~stop]
        m.episode[i] += 1
        if s.init_episodes > 0 and (m.episode[i] == s.init_episodes).any():
            self.samples.clear()
        self.algorithm.end_episodes(i)
        if self.kind != "se":
            self.task.release(self._states(i))
        m.state[i.to(m.state.device)] = self._reset(i)
        m.t[i] = 0
        m.total[i] = 0
        self.learning = bool((m.episode >= s.init_episodes).any())
        return len(last)

    def _reset(self, i: Tensor) -> Tensor:
        R = self.world.reset_uniforms
        u = reset_uniforms(self.m.reset[i], (self.m.episode[i] * R)[:, None], R)
        return self.world.reset(u.to(self.m.state.device), i)

    def _states(self, i: Tensor) -> Tensor:
        return self.m.state[i.to(self.m.state.device)]

    def final_test(self) -> Tensor:
        return final_test(self, lambda rows, key, first: tested(self.final.take(rows), key, first))


def tested(agents: Algorithm, key: Tensor, first: Tensor) -> Tuple[Tensor, Tensor]:
    """Tests of L agents. key, first: int64 [L] -> returns float64 [L, T], steps on the task int64 [L]."""
    noise, s = rng.fold(key, rng.EXPLORE), agents.section

    def policy(obs: Tensor, step: Tensor) -> Tensor:
        return agents.test_action(obs, noise, step)

    return test_episodes(agents.task, policy, key, first, s.test_episodes, s.same_action_num)
