"""Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347), for a whole population.

``train_population`` trains one agent per member in its world and tests it on the real task. Members act together in N
environments each (``agents/ppo/rollout.py``); after T decisions (``rollout_steps``) every member learns from its T N
transitions (``agents/ppo/update.py``). Its compiled twins are ``training.py`` of ``agents/kernels/ppo/`` and
``stepwise.py`` there, for steps that Python takes.

Episodes are numbered in the order in which they end, those of one decision by environment. Early out and the limit of
episodes are looked at after each, at the end of the rollout: a member that stops at an episode is the agent that played
it, and what its environments did later does not count. A limit that is reached at the last decision of a rollout is
looked at after the update, as the rollout is complete. The budget of steps is looked at after each update, so up to one
rollout more is taken. Only finished episodes are logged and counted.

Axes: T decisions, L members still in training, N environments, K episodes, D parameters.
"""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.early_out import early_out
from envolve.agents.common.hyper import Hyper
from envolve.agents.common.icm import ICM
from envolve.agents.common.job import Job
from envolve.agents.common.population import by_depth, keep_pages, unstack
from envolve.agents.common.result import AGENT_DIVERGED, WORLD_DIVERGED, TrainResult
from envolve.agents.common.rollout import capturable, final_test, test_episodes
from envolve.agents.common.sections import ICMSection, PPOSection
from envolve.agents.ppo import policy as ppo_policy
from envolve.agents.ppo.policy import Nets
from envolve.agents.ppo.rollout import PPOMembers, Rollout
from envolve.agents.ppo.update import Epochs
from envolve.core import rng
from envolve.envs.task import Task

NEVER = 2**62  # a decision or an episode that does not come
TEST_ROWS = 256  # agents in one batch of tests


def rollout_length(s: PPOSection, max_steps: int) -> int:
    """Decisions T per environment between two updates. Published: an update when the steps since the last one, counted
    as same_action_num per decision, exceed update_episodes max_steps."""
    if s.rollout_steps:
        return s.rollout_steps
    return int(s.update_episodes * max_steps / (s.same_action_num * s.num_envs)) + 1


def check(s: PPOSection, hyper: Hyper, max_steps: int) -> None:
    """Raises ValueError if these settings cannot work together."""
    samples = rollout_length(s, max_steps) * s.num_envs
    if samples // s.minibatches < 2:
        raise ValueError(f"ppo: {samples} samples per update in {s.minibatches} minibatches: each needs at least 2")
    if s.anneal_lr and (hyper["train_steps"] == 0).any():
        raise ValueError("ppo: anneal_lr lowers the learning rate over train_steps, which must be set")


class PPO:
    """Training of members with networks of the same depth."""

    def __init__(
        self, job: Job, nets: Nets, params: Tensor, icm: Optional[ICM] = None, cuda_graph: bool = False
    ) -> None:
        """params: float32 [P, D] of the job's members, on the device to train on."""
        task, kind, device = job.task, job.kind, params.device
        self.task, self.kind, self.test_each, self.nets, self.icm = task, kind, job.test_each, nets, icm
        self.keys = keys = torch.as_tensor(job.keys, device=device)
        self.s: PPOSection = job.hyper.section  # type: ignore[assignment]
        T = rollout_length(self.s, task.max_steps)
        self.rollout = Rollout(task, kind, job.section, self.s, nets, T, cuda_graph and capturable(task, kind))
        self.epochs = Epochs(task, self.s, nets, T, icm, cuda_graph)
        self._allocate(PPOMembers.create(job.hyper, job.worlds.to(device), keys, params))
        self.rollout.begin()
        # what is returned, by row
        shape = (len(keys), self.s.train_episodes)
        self.params, self.logged = params.clone(), torch.full(shape, torch.nan, device=device)
        self.length = torch.zeros(shape, dtype=torch.int32, device=device)
        self.complaints: Dict[int, str] = {}  # what the task says of members that failed on it, by row
        self.status, self.train_steps, self.updates, self.episodes, self.real_steps = (
            torch.zeros(len(keys), dtype=torch.int64, device=device) for _ in range(5)
        )

    def _allocate(self, m: PPOMembers) -> None:
        """Sets members ``m`` as those still in training."""
        self.m = m
        self.rollout.allocate(m)
        self.epochs.allocate(m)

    def train(self) -> None:
        while self.m.live.any():
            if self.m.live.float().mean() < 0.75:
                alive = self.m.live.nonzero()[:, 0]
                if self.icm is not None:
                    self.icm.keep(alive)
                self._allocate(self.m.keep(alive))
            m = self.m
            self.rollout.play()
            self._end_episodes()
            self.epochs.learn(self.rollout)
            diverged = ~torch.isfinite(m.params).all(1)
            self._finish(m.live & diverged, m.n, m.episode, AGENT_DIVERGED)
            done = (m.n >= m.budget) | (m.episode == self.s.train_episodes)
            self._finish(m.live & done, m.n, m.episode, 0)

    # ------------------------------------------------------------------------------------------------- the episodes

    def _end_episodes(self) -> None:
        """Logs the episodes that ended in this rollout and finishes the members that stop at one of them."""
        m, s, (t0, n0) = self.m, self.s, self.rollout.started
        parts = self.rollout.memory.parts
        counted = (parts.over, parts.failed, parts.total, parts.t)
        over, failed, total, t = (x[..., 0].transpose(0, 1) for x in counted if x is not None)  # [L, T, N]
        over, failed, t = over > 0, failed > 0, t.long()
        before = torch.cat((t0[:, None], torch.where(over, 0, t)[:, :-1]), 1)
        n = n0[:, None] + (t - before).sum(2).cumsum(1)  # [L, T], steps after each decision
        m.n.copy_(n[:, -1])
        failed = failed.any(2)
        fails = torch.where(failed.any(1), failed.float().argmax(1), NEVER)  # the decision

        ended = over.flatten(1) & m.live[:, None]
        number = m.episode[:, None] + ended.cumsum(1) - 1
        when = torch.arange(ended.shape[1], device=ended.device) // s.num_envs
        ended &= (number < s.train_episodes) & (when < fails[:, None])
        i, column = ended.nonzero(as_tuple=True)
        row, e, when = m.row[i], number[i, column], when[column]
        self.length[row, e] = t.flatten(1)[i, column].int()
        logged, tested = total.flatten(1)[i, column], torch.zeros_like(e)
        if self.test_each:
            logged, tested = self._test_each(i, e)
        self.logged[row, e] = logged
        settles = self.kind == "se" and not self.test_each
        stop = early_out(self.logged, e, n[i, when], s, settles, self.task.solved_reward, row)
        stop |= (e == s.train_episodes - 1) & (when < over.shape[1] - 1)
        last = torch.full_like(m.episode, NEVER).scatter_reduce_(0, i[stop], e[stop], "amin")  # episode to stop at
        late = e > last[i]
        self.logged[row[late], e[late]], self.length[row[late], e[late]] = torch.nan, 0
        self.real_steps.index_add_(0, row, torch.where(late, 0, tested))
        m.episode += ended.sum(1)

        at = torch.full_like(last, 0).scatter_reduce_(0, i, torch.where(e == last[i], when, 0), "amax")
        self._finish(m.live & (last < NEVER), n.gather(1, at[:, None])[:, 0], last + 1, 0)
        lost = m.live & (fails < NEVER)
        at = torch.where(lost, fails, 0)
        self._finish(lost, n.gather(1, at[:, None])[:, 0], m.episode, WORLD_DIVERGED)

    def _test_each(self, i: Tensor, e: Tensor) -> Tuple[Tensor, Tensor]:
        """Tests members i after episodes e -> mean returns float32, steps int64, [K]."""
        means, steps = [], []
        for a in range(0, len(i), TEST_ROWS):
            j = i[a : a + TEST_ROWS]
            returns, taken = self._test(self.m.params[j], self.m.test[j], e[a : a + TEST_ROWS] * self.s.test_episodes)
            means.append(returns.mean(1))
            steps.append(taken)
        if not means:
            return torch.zeros(0, device=i.device), torch.zeros_like(e)
        return torch.cat(means).float(), torch.cat(steps)

    def _finish(self, which: Tensor, n: Tensor, episodes: Tensor, status: int) -> None:
        """Ends the training of members ``which`` (bool [L]) after n steps."""
        m = self.m
        i = which.nonzero()[:, 0]
        row = m.row[i]
        m.live[i] = False
        if self.kind != "se":
            for failing in i.tolist() if status == WORLD_DIVERGED else ():
                self.complaints[int(m.row[failing])] = self.rollout.complaints.get(failing, "")
            self.task.release(m.state[i])
        self.params[row], self.updates[row], self.train_steps[row] = m.params[i], m.updates[i], n[i]
        self.episodes[row], self.status[row] = episodes[i], status
        if self.kind != "se":
            self.real_steps[row] += n[i]

    # ---------------------------------------------------------------------------------------------------- the tests

    def _test(self, params: Tensor, key: Tensor, first: Tensor) -> Tuple[Tensor, Tensor]:
        return tested(self.task, self.s, self.nets, params, key, first)

    def final_test(self) -> Tensor:
        return final_test(self, lambda rows, key, first: self._test(self.params[rows], key, first))


def tested(task: Task, s: PPOSection, nets: Nets, params: Tensor, key: Tensor, first: Tensor) -> Tuple[Tensor, Tensor]:
    """Tests of L agents. params [L, D]; key, first int64 [L] -> returns float64 [L, T], steps on the task int64 [L]."""
    key_of_noise = rng.fold(key, rng.EXPLORE)[:, None, None]

    def policy(obs: Tensor, step: Tensor) -> Tensor:
        if not s.test_noise:
            return ppo_policy.greedy(nets, params, obs, task.max_action)
        noise = ppo_policy.noise(nets, key_of_noise, step)
        return ppo_policy.act(nets, params, obs, noise, task.max_action)[0]

    return test_episodes(task, policy, key, first, s.test_episodes, s.same_action_num)


def train_population(
    job: Job, device: str = "cpu", icm: Optional[ICMSection] = None, cuda_graph: bool = True
) -> TrainResult:
    """Train P agents and test them on the real task.

    icm: pay for curiosity too. cuda_graph: replay decisions and updates as graphs, where the device is a GPU. Raises
    ValueError if settings contradict each other.
    """
    keep_pages()
    task, hyper = job.task, job.hyper
    s: PPOSection = hyper.section  # type: ignore[assignment]
    check(s, hyper, task.max_steps)
    agents = ppo_policy.networks(task, hyper)
    weights = ppo_policy.initial_weights(task, agents, hyper, job.keys)
    S = task.action_size  # standard deviations, in front of the networks
    result = TrainResult.before_training(weights, s.train_episodes, s.test_episodes)
    for rows, part, (actor, critic) in by_depth(agents, hyper):
        group, nets = job.take(rows), Nets(S, actor, critic, s.squash)
        params = ppo_policy.padded(torch.as_tensor(weights[rows], device=device), part, nets)
        curiosity = None if icm is None else ICM(task, icm, torch.as_tensor(group.keys, device=device))
        run = PPO(group, nets, params, curiosity, cuda_graph and params.is_cuda)
        run.train()
        trained = unstack(run.params[:, S:], part, (actor, critic), weights.shape[1] - S)
        result.put(rows, run, torch.cat((run.params[:, :S], trained), 1))
    return result


def test_trained(
    task: Task, hyper: Hyper, weights: np.ndarray, keys: np.ndarray, stream: int = rng.FINAL_TEST, first: int = 0
) -> Tuple[np.ndarray, np.ndarray]:
    """Tests of agents that are trained elsewhere, on the CPU. weights: float32 [P, D], as ``TrainResult`` has them;
    keys: int64 [P]; first: number of the first episode in this stream -> returns float64 [P, T], steps on the task
    int64 [P]."""
    agents = ppo_policy.networks(task, hyper)
    s: PPOSection = hyper.section  # type: ignore[assignment]
    returns, steps = np.full((len(keys), s.test_episodes), np.nan), np.zeros(len(keys), np.int64)
    for rows, part, (actor, critic) in by_depth(agents, hyper):
        nets = Nets(task.action_size, actor, critic, s.squash)
        params = ppo_policy.padded(torch.as_tensor(weights[rows]), part, nets)
        key = rng.fold(torch.as_tensor(keys[rows]), stream)
        of_group = tested(task, s, nets, params, key, torch.full_like(key, first))
        returns[rows], steps[rows] = (x.numpy() for x in of_group)
    return returns, steps
