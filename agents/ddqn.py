"""Double DQN with a soft target update (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461), a whole population.

``train_population`` trains one agent per member in its world and tests it on the real task. All members take each
decision together: one batched call acts, one steps the worlds, one updates every network. Episodes end member by
member, and so does training; the finished are dropped from the batch. A member's result depends on its key, its world
and its hyperparameters only. The compiled twin is ``agents/kernels/ddqn.py``.

Axes: L members still in training, B minibatch, A actions, F observation features, D parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Tuple, Union

import numpy as np
import torch
from torch import Tensor

from agents.early_out import early_out
from agents.hyper import Hyper
from agents.population import adam, initial_weights, keep_pages, q_shapes, stack, unstack
from agents.replay import Replay, capacity
from agents.result import AGENT_DIVERGED, WORLD_DIVERGED, TrainResult
from agents.rollout import make_world, repeat, reset_uniforms, test_episodes
from envs import rng
from envs.networks import MLPShape, forward
from envs.section import EnvSection
from envs.task import Task

BLOCK = 32  # decisions between two looks at how many members are still in training
NO_BUDGET = 2**62


@dataclass
class Members:
    """The members still in training: [L], int64 but where said."""

    row: Tensor  # index in the group
    world: Tensor  # float32 [L, W], parameters of their worlds
    explore: Tensor  # keys of the random streams
    replay: Tensor
    reset: Tensor
    test: Tensor
    lr: Tensor  # float64
    gamma: Tensor  # float32 [L, 1], as tau
    tau: Tensor
    eps: Tensor  # float64, as the next two
    eps_min: Tensor
    eps_decay: Tensor
    sample_weight: Tensor  # float32 [L, B], 1 / batch_size for the first batch_size samples and 0 for the rest
    budget: Tensor  # environment steps
    params: Tensor  # float32 [L, D], as the next three
    target: Tensor
    m: Tensor
    v: Tensor
    state: Tensor  # [L, 1, S]
    t: Tensor  # environment steps in this episode
    n: Tensor  # in all episodes
    total: Tensor  # float64, this episode's return
    episode: Tensor
    updates: Tensor
    live: Tensor  # bool; false: finished, not yet dropped

    def keep(self, index: Tensor) -> Members:
        return Members(*(getattr(self, f.name)[index] for f in fields(self)))


def greedy(shape: MLPShape, params: Tensor, obs: Tensor) -> Tensor:
    """argmax_a Q(obs, a), the first of equal ones. obs: [P, N, F] -> int64 [P, N]."""
    return forward(shape, params, obs.transpose(1, 2)).max(1).indices


def gradient(shape: MLPShape, params: Tensor, target: Tensor, batch: Tensor, gamma: Tensor, weight: Tensor) -> Tensor:
    """Gradient by params [L, D] of each member's loss, the sum over its batch of weight (Q(s, a) - y)^2 with
    y = r + gamma (1 - d) Q_target(s', argmax_a Q(s', a)).

    batch: [L, 2 F + 3, B], rows s, s', a, r, d; gamma: [L, 1]; weight: [L, B].
    """
    F, A = shape.inputs, shape.outputs
    s, s_next, action, reward, done = batch[:, :F], batch[:, F : 2 * F], batch[:, 2 * F], batch[:, -2], batch[:, -1]
    with torch.no_grad():
        best = forward(shape, params, s_next).max(1, keepdim=True).indices  # max, not argmax: 30 times faster here
        q_next = forward(shape, target, s_next).gather(1, best)[:, 0]
        y = reward + gamma * (1 - done) * q_next
        taken = action[:, None] == torch.arange(A, device=params.device)[:, None]
    leaf = params.detach().requires_grad_()
    q = forward(shape, leaf, s)
    # dloss/dq = 2 weight (q - y) at the action taken and 0 elsewhere; autograd does the rest
    dq = (q.detach() - y[:, None]) * (2 * weight)[:, None] * taken
    return torch.autograd.grad(q, leaf, dq)[0]


class DDQN:
    """The training of members that share the depth of their networks."""

    def __init__(
        self, task: Task, kind: str, section: EnvSection, worlds: Tensor, hyper: Hyper, keys: Tensor, test_each: bool,
        shape: MLPShape, params: Tensor,
    ) -> None:  # fmt: skip
        self.task, self.kind, self.section, self.test_each, self.shape = task, kind, section, test_each, shape
        self.s = s = hyper.section
        self.keys, device, P, E = keys, keys.device, len(keys), s.train_episodes

        def column(name: str, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.as_tensor(np.array(hyper[name]), dtype=dtype, device=device)

        zero = torch.zeros(P, dtype=torch.int64, device=device)
        batch_size, budget = column("batch_size", torch.int64)[:, None], column("train_steps", torch.int64)
        used = torch.arange(int(batch_size.max()), device=device) < batch_size
        self.m = Members(
            row=torch.arange(P, device=device), world=worlds, explore=rng.fold(keys, rng.EXPLORE),
            replay=rng.fold(keys, rng.REPLAY), reset=rng.fold(keys, rng.RESET), test=rng.fold(keys, rng.TEST),
            lr=column("lr"), gamma=column("gamma", torch.float32)[:, None], tau=column("tau", torch.float32)[:, None],
            eps=column("eps_init"), eps_min=column("eps_min"), eps_decay=column("eps_decay"),
            sample_weight=used / batch_size, budget=torch.where(budget > 0, budget, NO_BUDGET), params=params,
            target=params.clone(), m=torch.zeros_like(params), v=torch.zeros_like(params),
            state=zero, t=zero.clone(), n=zero.clone(), total=zero.double(), episode=zero.clone(), updates=zero.clone(),
            live=zero == 0,
        )  # fmt: skip
        self.memory = Replay(torch.as_tensor(capacity(hyper, task.max_steps), device=device), 2 * shape.inputs + 3)
        self._worlds_of_live()
        self.m.state = self._reset(self.m.row)
        self.learning = s.init_episodes == 0
        # what is returned, by row
        self.params, self.logged = params.clone(), torch.full((P, E), torch.nan, device=device)
        self.length = torch.zeros((P, E), dtype=torch.int32, device=device)
        self.status, self.train_steps, self.updates, self.episodes, self.real_steps = (zero.clone() for _ in range(5))

    def _worlds_of_live(self) -> None:
        self.world = make_world(self.kind, self.task, self.section, self.m.world, self.m.gamma[:, 0])

    def train(self) -> None:
        decision, left = 0, len(self.keys)
        while left:
            if decision % BLOCK == 0:
                if left < 0.75 * len(self.m.row):
                    alive = self.m.live.nonzero()[:, 0]
                    self.m = self.m.keep(alive)
                    self.memory.keep(alive)
                    self._worlds_of_live()
                explore, random_action = self._exploration(decision)
            failed, ended = self._decide_and_learn(explore[decision % BLOCK], random_action[decision % BLOCK])
            if ended.any():
                left -= self._end_episodes(ended.nonzero()[:, 0], failed)
            decision += 1

    def _exploration(self, decision: int) -> Tuple[Tensor, Tensor]:
        """What is compared with eps and the random actions of the next BLOCK decisions, [BLOCK, L] each."""
        counter = 2 * torch.arange(decision, decision + BLOCK, device=self.keys.device)[:, None]
        actions = torch.tensor(self.task.num_actions, device=self.keys.device)
        return rng.uniform(self.m.explore, counter), rng.integer(self.m.explore, counter + 1, actions)

    def _decide_and_learn(self, u: Tensor, random_action: Tensor) -> Tuple[Tensor, Tensor]:
        """One decision and at most one update of each member -> failed, ended (this episode), bool [L]."""
        m, task, s = self.m, self.task, self.s
        obs = self.world.observe(m.state)
        action = torch.where((u < m.eps.float())[:, None], random_action[:, None], greedy(self.shape, m.params, obs))
        m.state, reward, done, failed, t, over = repeat(
            self.world, m.state, action, m.t[:, None], s.same_action_num, task.max_steps
        )
        if self.kind != "se" and not s.bootstrap_time_limit:
            done = torch.where(t >= task.max_steps, torch.ones_like(done), done)
        self.memory.write(torch.cat((obs[:, 0], self.world.observe(m.state)[:, 0], action, reward, done), dim=1))
        failed, over, t = failed[:, 0], over[:, 0], t[:, 0]
        m.n += t - m.t
        m.t = t
        m.total += reward[:, 0]

        learns = (m.episode >= s.init_episodes) & ~failed
        if self.learning:
            batch = self.memory.sample(m.replay, m.updates, m.sample_weight.shape[1])
            weight = m.sample_weight * learns[:, None]
            grad = gradient(self.shape, m.params, m.target, batch, m.gamma, weight)
            m.updates += learns
            # A member that has not begun to learn has grad = m = v = 0: Adam leaves it alone. One that failed keeps its
            # weights by a learning rate of 0.
            adam(m.params, grad, m.m, m.v, m.updates.clamp(min=1), m.lr * learns)
            m.target.lerp_(m.params, m.tau)
        return failed, (over | (m.n >= m.budget)) & m.live

    def _end_episodes(self, i: Tensor, failed: Tensor) -> int:
        """Log the episodes of members i, stop those that are done, reset the others. Returns how many stopped."""
        m, s = self.m, self.s
        row, e = m.row[i], m.episode[i]
        self.length[row, e] = m.t[i].int()
        status = torch.where(torch.isfinite(m.params[i]).all(1), 0, AGENT_DIVERGED)
        status = torch.where(failed[i], WORLD_DIVERGED, status)
        ok = status == 0
        if self.test_each and ok.any():
            returns, steps = self._test(m.params[i[ok]], m.test[i[ok]], e[ok] * s.test_episodes)
            m.total[i[ok]] = returns.mean(1)
            self.real_steps[row[ok]] += steps
        self.logged[row[ok], e[ok]] = m.total[i[ok]].float()
        settles = self.kind == "se" and not self.test_each
        stop = early_out(self.logged[row], e, m.n[i], s, settles, self.task.solved_reward)
        stop = stop | (m.n[i] >= m.budget[i]) | (e + 1 >= s.train_episodes) | ~ok

        last, finished = i[stop], row[stop]
        m.live[last] = False
        self.params[finished], self.updates[finished] = m.params[last], m.updates[last]
        self.train_steps[finished], self.episodes[finished] = m.n[last], m.episode[last] + 1
        self.status[finished] = status[stop]
        if self.kind != "se":
            self.real_steps[finished] += m.n[last]

        i = i[~stop]
        m.episode[i] += 1
        m.eps[i] = torch.maximum(m.eps[i] * m.eps_decay[i], m.eps_min[i])
        self._begin_episodes(i)
        return len(last)

    def _begin_episodes(self, i: Tensor) -> None:
        m = self.m
        m.state[i] = self._reset(i)
        m.t[i] = 0
        m.total[i] = 0
        self.learning = bool((m.episode >= self.s.init_episodes).any())

    def _reset(self, i: Tensor) -> Tensor:
        R = self.task.reset_uniforms
        return self.world.reset(reset_uniforms(self.m.reset[i], (self.m.episode[i] * R)[:, None], R))

    def _test(self, params: Tensor, key: Tensor, first: Tensor) -> Tuple[Tensor, Tensor]:
        def policy(obs: Tensor) -> Tensor:
            return greedy(self.shape, params, obs)

        return test_episodes(self.task, policy, key, first, self.s.test_episodes, self.s.same_action_num)

    def final_test(self) -> Tensor:
        """Returns of every member's final policy on the real task, float64 [P, T]; NaN where it has none."""
        ok = self.status == 0
        returns = torch.full((len(ok), self.s.test_episodes), torch.nan, dtype=torch.float64, device=ok.device)
        if ok.any():
            key = rng.fold(self.keys[ok], rng.FINAL_TEST)
            returns[ok], steps = self._test(self.params[ok], key, torch.zeros_like(key))
            self.real_steps[ok] += steps
        return returns


def train_population(
    task: Task, kind: str, section: EnvSection, worlds: Union[np.ndarray, Tensor], hyper: Hyper, keys: np.ndarray,
    test_each: bool, device: str = "cpu",
) -> TrainResult:  # fmt: skip
    """Train P agents and test them on the real task.

    kind: "real", "se" or "rn", what ``worlds`` float32 [P, W] are (any width for "real"); keys: int64 [P];
    test_each: test after every training episode and stop when the task is solved (kind "rn"; "se" only if asked).
    """
    keep_pages()
    shapes = q_shapes(task, hyper)
    weights = initial_weights(shapes, keys)
    result = TrainResult.before_training(weights, hyper.section.train_episodes, hyper.section.test_episodes)
    depth = np.maximum(1, hyper["hidden_layer"])
    for layers in np.unique(depth):  # nets of one depth are stacked, the narrower ones padded with units that stay zero
        rows = np.flatnonzero(depth == layers)
        part = [shapes[i] for i in rows]
        widest = max(part, key=lambda shape: shape.hidden)
        params = stack(torch.as_tensor(weights[rows], device=device), part, widest)
        run = DDQN(
            task, kind, section, torch.as_tensor(worlds, dtype=torch.float32)[rows].to(device), hyper.take(rows),
            torch.as_tensor(keys[rows], device=device), test_each, widest, params,
        )  # fmt: skip
        run.train()
        result.test_return[rows] = run.final_test().cpu().numpy()
        result.weights[rows] = unstack(run.params, part, widest, weights.shape[1]).cpu().numpy()
        for name, values in (
            ("train_steps", run.train_steps), ("updates", run.updates), ("episodes", run.episodes),
            ("real_steps", run.real_steps), ("episode_return", run.logged), ("episode_length", run.length),
            ("status", run.status),
        ):  # fmt: skip
            getattr(result, name)[rows] = values.cpu().numpy()
    return result
