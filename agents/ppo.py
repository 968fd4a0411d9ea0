"""Proximal policy optimisation (Schulman et al. 2017, https://arxiv.org/abs/1707.06347), for a whole population.

``train_population`` trains one agent per member in its world and tests it on the real task. Members act together in N
environments each; after T decisions (``rollout_steps``) every member learns from its T N transitions. The compiled twin
is ``agents/kernels/ppo.py``.

Episodes are numbered in the order in which they end, those of one decision by environment. Early out and the limit of
episodes are looked at after each, at the end of the rollout: a member that stops at an episode is the agent that played
it, and what its environments did later does not count. The budget of steps is looked at after each update, so up to one
rollout more is taken. Only finished episodes are logged and counted.

Axes: T decisions, L members still in training, N environments, B minibatch, A actions, F features, D parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Optional, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from agents import ppo_policy
from agents.early_out import early_out
from agents.graph import Graphs
from agents.hyper import Hyper
from agents.icm import ICM
from agents.population import adam, keep_pages, stack, unstack, widest
from agents.ppo_policy import Coefficients, Nets
from agents.result import AGENT_DIVERGED, WORLD_DIVERGED, TrainResult
from agents.returns import lambda_returns, normalise
from agents.rollout import make_world, repeat, reset_uniforms, reward_noise, test_episodes
from agents.sections import ICMSection, PPOSection
from envs import rng
from envs.networks import forward
from envs.section import EnvSection
from envs.task import Task

RETURN_EPSILON = 1e-5  # of the normalisation of Monte Carlo returns
NO_BUDGET, NEVER = 2**62, 2**62
TEST_ROWS = 256  # agents in one batch of tests


def rollout_length(s: PPOSection, max_steps: int) -> int:
    """T, decisions per environment between two updates. Published: an update when the steps since the last one, counted
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


@dataclass
class Members:
    """The members still in training: [L], int64 but where said."""

    row: Tensor  # index in the group
    world: Tensor  # float32 [L, W], parameters of their worlds
    explore: Tensor  # keys of the random streams
    shuffle: Tensor
    reset: Tensor
    test: Tensor
    reward: Tensor
    lr: Tensor  # float64, at first; rate: now
    rate: Tensor
    gamma: Tensor  # float32 [L, 1], as the next five
    lam: Tensor  # 1 with Monte Carlo returns
    eps_clip: Tensor
    vf_coef: Tensor
    ent_coef: Tensor
    max_grad_norm: Tensor  # infinite: no limit
    budget: Tensor  # environment steps
    params: Tensor  # float32 [L, D], as the next two
    m: Tensor
    v: Tensor
    mean: Tensor  # float32 [L, 1], of the Monte Carlo returns that the critic learned last, in whose units it predicts
    std: Tensor
    state: Tensor  # [L, N, S]
    t: Tensor  # [L, N], environment steps in this episode
    total: Tensor  # float64 [L, N], this episode's return
    n: Tensor  # environment steps in all episodes
    episode: Tensor  # episodes finished
    updates: Tensor
    live: Tensor  # bool; false: finished, not yet dropped

    def keep(self, index: Tensor) -> Members:
        return Members(*(getattr(self, f.name)[index] for f in fields(self)))


class PPO:
    """The training of members that share the depth of their networks."""

    def __init__(
        self, task: Task, kind: str, section: EnvSection, worlds: Tensor, hyper: Hyper, keys: Tensor, test_each: bool,
        nets: Nets, params: Tensor, icm: Optional[ICM] = None, cuda_graph: bool = False,
    ) -> None:  # fmt: skip
        self.task, self.kind, self.section, self.test_each, self.nets = task, kind, section, test_each, nets
        self.icm = icm
        self.s: PPOSection = hyper.section  # type: ignore[assignment]
        s, self.keys, device, P, N = self.s, keys, keys.device, len(keys), self.s.num_envs
        self.T = rollout_length(s, task.max_steps)

        def column(name: str) -> Tensor:
            return torch.as_tensor(np.array(hyper[name]), dtype=torch.float64, device=device)

        def row(name: str) -> Tensor:
            return column(name).float()[:, None]

        zero = torch.zeros(P, dtype=torch.int64, device=device)
        none = torch.zeros(P, 1, device=device)
        budget, norm = column("train_steps").long(), row("max_grad_norm")
        self.m = Members(
            row=torch.arange(P, device=device), world=worlds, explore=rng.fold(keys, rng.EXPLORE),
            shuffle=rng.fold(keys, rng.REPLAY), reset=rng.fold(keys, rng.RESET), test=rng.fold(keys, rng.TEST),
            reward=rng.fold(keys, rng.REWARD), lr=column("lr"), rate=column("lr"), gamma=row("gamma"),
            lam=row("gae_lambda") if s.advantage == "gae" else torch.ones_like(none),
            eps_clip=row("eps_clip"), vf_coef=row("vf_coef"), ent_coef=row("ent_coef"),
            max_grad_norm=torch.where(norm > 0, norm, torch.inf), budget=torch.where(budget > 0, budget, NO_BUDGET),
            params=params, m=torch.zeros_like(params), v=torch.zeros_like(params), mean=none, std=none + 1,
            state=zero, t=zero[:, None].repeat(1, N), total=none.double().repeat(1, N), n=zero, episode=zero.clone(),
            updates=zero.clone(), live=zero == 0,
        )  # fmt: skip
        self.decision = 0  # decisions of each environment since training began
        self.step = torch.zeros(1, dtype=torch.int64, device=device)  # decisions of this rollout
        self.decide, self.update = Graphs(self._decide, cuda_graph), Graphs(self._update, cuda_graph)
        self._allocate()
        self.m.state = self._resets(-1, 1)[0]
        # what is returned, by row
        E = s.train_episodes
        self.params, self.logged = params.clone(), torch.full((P, E), torch.nan, device=device)
        self.length = torch.zeros((P, E), dtype=torch.int32, device=device)
        self.status, self.train_steps, self.updates, self.episodes, self.real_steps = (zero.clone() for _ in range(5))

    def _allocate(self) -> None:
        """The world and the buffers of the members that are left."""
        m, nets, L, N, T = self.m, self.nets, len(self.m.row), self.s.num_envs, self.T
        F, A = self.task.observation_size, nets.actor.outputs
        self.world = make_world(self.kind, self.task, self.section, m.world, m.gamma[:, 0])
        self.decide.forget()
        self.update.forget()
        # a transition: s, s', the actor's output, action, reward, terminated, over, failed, return and steps so far
        self.columns = [F, F, A, nets.std or 1, 1, 1, 1, 1, 1, 1]
        self.rollout = torch.zeros(T, L, N, sum(self.columns), device=m.row.device)
        # what an update reads of it: s, action, log pi(a | s), return, V(s)
        self.samples = torch.zeros(L, T * N, F + (nets.std or 1) + 3, device=m.row.device)

    def train(self) -> None:
        while self.m.live.any():
            m = self.m
            if m.live.float().mean() < 0.75:
                alive = m.live.nonzero()[:, 0]
                self.m = m = m.keep(alive)
                if self.icm is not None:
                    self.icm.keep(alive)
                self._allocate()
            self.started = m.t.clone(), m.n.clone()
            self.step.zero_()
            for draw in zip(*self._draws()):
                self.decide(None, *draw)
            self.decision += self.T
            self._end_episodes()
            self._prepare()
            for epoch in range(self.s.ppo_epochs):
                for index in self._minibatches(epoch):
                    self.update(None, index)
            self._learn_curiosity()
            diverged = ~torch.isfinite(m.params).all(1)
            self._finish(m.live & diverged, m.n, m.episode, AGENT_DIVERGED)
            self._finish(m.live & (m.n >= m.budget), m.n, m.episode, 0)

    # ------------------------------------------------------------------------------------------------- the rollout

    def _resets(self, decision: int, count: int) -> Tensor:
        """States [count, L, N, S] of episodes that begin after decisions d = ``decision`` ..: environment n draws
        the uniforms ((d + 1) N + n) R, ..."""
        N, R = self.s.num_envs, self.task.reset_uniforms
        number = torch.arange((decision + 1) * N, (decision + 1 + count) * N, device=self.m.row.device)
        u = reset_uniforms(self.m.reset, (number * R).expand(len(self.m.row), -1), R)
        state = self.world.reset(u)
        return state.unflatten(1, (count, N)).transpose(0, 1).contiguous()

    def _draws(self) -> Tuple[Tensor, Tensor, Tensor]:
        """The random numbers of a rollout: noise of actions [T, L, N, A], first states [T, L, N, S], and the numbers of
        the decisions [T, 1, N], from which rewards draw theirs."""
        N, first = self.s.num_envs, self.decision * self.s.num_envs
        number = torch.arange(first, first + self.T * N, device=self.m.row.device).view(self.T, 1, N)
        noise = ppo_policy.noise(self.nets, self.m.explore[:, None, None], number)
        return noise, self._resets(self.decision, self.T), number

    def _decide(self, _: None, noise: Tensor, start: Tensor, number: Tensor) -> Tuple[Tensor, ...]:
        """One decision in every environment; episodes that end begin anew."""
        m, task, step = self.m, self.task, self.step
        obs = self.world.observe(m.state)
        action, remembered, out = ppo_policy.act(self.nets, m.params, obs, noise, task.max_action)
        skip = self.s.same_action_num
        first = number * skip - m.t  # of decision d of environment n, step i draws (d N + n) skip + i
        pays = (lambda t: reward_noise(self.world, m.reward, first + t)) if self.world.reward_noise else None
        state, reward, done, failed, t, over = repeat(self.world, m.state, action, m.t, skip, task.max_steps, pays)
        m.total += reward
        now = torch.stack([x.float() for x in (reward, done > 0.5, over, failed, m.total, t)], 2)
        self.rollout.index_copy_(0, step, torch.cat((obs, self.world.observe(state), out, remembered, now), 2)[None])
        m.state.copy_(torch.where(over.unsqueeze(-1), start, state))
        m.t.copy_(t.masked_fill_(over, 0))
        m.total.masked_fill_(over, 0)
        step += 1
        return ()

    def _end_episodes(self) -> None:
        """Log the episodes that ended in this rollout and finish the members that stop at one of them."""
        m, s, (t0, n0) = self.m, self.s, self.started
        over, failed, total, t = (x[..., 0].transpose(0, 1) for x in self._columns()[-4:])  # [L, T, N]
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
        stop |= e == s.train_episodes - 1
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

    def _columns(self) -> Tuple[Tensor, ...]:
        return self.rollout.split(self.columns, dim=3)

    def _test_each(self, i: Tensor, e: Tensor) -> Tuple[Tensor, Tensor]:
        """Tests after episodes e of members i -> mean returns float32, steps int64, [K]."""
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
        """Members ``which`` (bool [L]) end their training after n steps."""
        m = self.m
        i = which.nonzero()[:, 0]
        row = m.row[i]
        m.live[i] = False
        self.params[row], self.updates[row], self.train_steps[row] = m.params[i], m.updates[i], n[i]
        self.episodes[row], self.status[row] = episodes[i], status
        if self.kind != "se":
            self.real_steps[row] += n[i]

    # ------------------------------------------------------------------------------------------------- the update

    def _prepare(self) -> None:
        """Returns, values and log probabilities of the rollout, into ``samples``."""
        m, s, nets, shape = self.m, self.s, self.nets, self.rollout.shape[:3]
        obs, next_obs, out, action, reward, terminated, over = (
            column.permute(1, 3, 0, 2).flatten(2) for column in self._columns()[:7]  # [L, _, T N]
        )  # fmt: skip

        def by_time(x: Tensor) -> Tensor:
            return x.view(shape[1], shape[0], shape[2]).transpose(0, 1)

        _, _, critic = nets.split(m.params)
        value, next_value = forward(nets.critic, critic, obs)[:, 0], forward(nets.critic, critic, next_obs)[:, 0]
        if not s.bootstrap_time_limit:
            terminated = over
        if self.icm is not None:
            reward = reward + self.icm.reward(obs, next_obs, action)[:, None]
        ahead = next_value
        if s.advantage == "monte_carlo":
            ahead = next_value * m.std + m.mean if s.bootstrap_time_limit else torch.zeros_like(next_value)
        returns = lambda_returns(
            by_time(reward), by_time(terminated) > 0, by_time(over) > 0, by_time(ahead), m.gamma, m.lam
        )
        returns = returns.transpose(0, 1).flatten(1)
        if s.advantage == "monte_carlo":
            std, mean = torch.std_mean(returns, dim=1, keepdim=True)
            m.std.copy_(std), m.mean.copy_(mean)
            returns = normalise(returns, RETURN_EPSILON)
        logp = ppo_policy.log_prob(nets, m.params, out, action, self.task.max_action)
        self.samples.copy_(torch.cat((obs, action, torch.stack((logp, returns, value), 1)), 1).transpose(1, 2))
        if s.anneal_lr:
            m.rate.copy_(m.lr * (1 - self.started[1] / m.budget))

    def _learn_curiosity(self) -> None:
        """One update of the curiosity module on the rollout, after the policy's, as in the original."""
        if self.icm is not None:
            obs, next_obs, _, action = (x.permute(1, 3, 0, 2).flatten(2) for x in self._columns()[:4])
            samples = obs.shape[2]
            self.icm.update(obs, next_obs, action, obs.new_full((obs.shape[0], samples), 1 / samples))

    def _minibatches(self, epoch: int) -> Tuple[Tensor, ...]:
        """Indices of samples int64 [L B], one tensor per minibatch: a random order, cut; what is left over is not used.

        The order is that of hashes: (bits of counter (u epochs + epoch) T N + i) with its lowest bits replaced by i, in
        the u-th update of all; sorted as positive integers.
        """
        L, samples = self.samples.shape[:2]
        base = torch.arange(L, device=self.m.row.device)[:, None] * samples
        if self.s.minibatches == 1:
            return (torch.empty(0, device=self.m.row.device),)
        first = ((self.decision // self.T - 1) * self.s.ppo_epochs + epoch) * samples
        i = torch.arange(samples, device=self.m.row.device)
        low = (1 << (samples - 1).bit_length()) - 1
        hashed = rng.bits(self.m.shuffle[:, None], first + i).bitwise_and_(~low & (2**63 - 1)).bitwise_or_(i)
        order = hashed.sort(dim=1).values.bitwise_and_(low).add_(base)
        B = samples // self.s.minibatches
        return tuple(order[:, b * B : (b + 1) * B].flatten() for b in range(self.s.minibatches))

    def _update(self, _: None, index: Tensor) -> Tuple[Tensor, ...]:
        """One step of Adam on the samples ``index`` (empty: on all of them)."""
        m, s, nets = self.m, self.s, self.nets
        L, C = self.samples.shape[0], self.samples.shape[2]
        batch = self.samples
        if len(index):
            batch = batch.view(-1, C).index_select(0, index).view(L, -1, C)
        batch = batch.transpose(1, 2).contiguous()  # three times faster than strided columns
        F = nets.actor.inputs
        gradient = ppo_policy.gradient(
            nets, m.params, batch[:, :F], batch[:, F:-3], batch[:, -3], batch[:, -2], batch[:, -1],
            Coefficients(m.eps_clip, m.vf_coef, m.ent_coef), s, self.task.max_action,
        )  # fmt: skip
        if s.max_grad_norm:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient *= (m.max_grad_norm / (norm + 1e-6)).clamp(max=1)
        m.updates += 1
        adam(m.params, gradient, m.m, m.v, m.updates, m.rate, s.adam_eps)
        return ()

    # ---------------------------------------------------------------------------------------------------- the tests

    def _test(self, params: Tensor, key: Tensor, first: Tensor) -> Tuple[Tensor, Tensor]:
        task, s = self.task, self.s
        key_of_noise = rng.fold(key, rng.EXPLORE)[:, None, None]

        def policy(obs: Tensor, step: Tensor) -> Tensor:
            noise = torch.zeros(obs.shape[:2] + (self.nets.actor.outputs,), device=obs.device)
            if s.test_noise:
                noise = ppo_policy.noise(self.nets, key_of_noise, step)
            return ppo_policy.act(self.nets, params, obs, noise, task.max_action)[0]

        return test_episodes(task, policy, key, first, s.test_episodes, s.same_action_num)

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
    test_each: bool, device: str = "cpu", icm: Optional[ICMSection] = None, cuda_graph: bool = True,
) -> TrainResult:  # fmt: skip
    """Train P agents and test them on the real task.

    kind: "real", "se" or "rn", what ``worlds`` float32 [P, W] are (any width for "real"); keys: int64 [P];
    test_each: test after every training episode and stop when the task is solved (kind "rn"; "se" only if asked).
    icm: pay for curiosity too. cuda_graph: replay decisions and updates as graphs, where the device is a GPU. Raises
    ValueError if settings contradict each other.
    """
    keep_pages()
    s: PPOSection = hyper.section  # type: ignore[assignment]
    check(s, hyper, task.max_steps)
    agents = ppo_policy.networks(task, hyper)
    weights = ppo_policy.initial_weights(task, agents, hyper, keys)
    S = task.action_size  # standard deviations, in front of the networks
    result = TrainResult.before_training(weights, s.train_episodes, s.test_episodes)
    depth = np.maximum(1, hyper["hidden_layer"])
    for layers in np.unique(depth):  # nets of one depth are stacked, the narrower ones padded with units that stay zero
        rows = np.flatnonzero(depth == layers)
        part = [agents[i] for i in rows]
        own = torch.as_tensor(weights[rows], device=device)
        own_keys = torch.as_tensor(keys[rows], device=device)
        params = torch.cat((own[:, :S], stack(own[:, S:], part, widest(part))), 1)
        run = PPO(
            task, kind, section, torch.as_tensor(worlds, dtype=torch.float32)[rows].to(device), hyper.take(rows),
            own_keys, test_each, Nets(S, *widest(part)), params, None if icm is None else ICM(task, icm, own_keys),
            cuda_graph and params.is_cuda,
        )  # fmt: skip
        run.train()
        result.test_return[rows] = run.final_test().cpu().numpy()
        trained = unstack(run.params[:, S:], part, widest(part), weights.shape[1] - S)
        result.weights[rows] = torch.cat((run.params[:, :S], trained), 1).cpu().numpy()
        for name, values in (
            ("train_steps", run.train_steps), ("updates", run.updates), ("episodes", run.episodes),
            ("real_steps", run.real_steps), ("episode_return", run.logged), ("episode_length", run.length),
            ("status", run.status),
        ):  # fmt: skip
            getattr(result, name)[rows] = values.cpu().numpy()
    return result
