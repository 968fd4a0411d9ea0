"""Members of a PPO population, and their rollouts: T decisions in N environments each.

Axes: T decisions, L members still in training, N environments, A actions, F features, D parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Dict, Tuple

import torch
from torch import Tensor

from envolve.agents.common.cuda_graph import Graphs
from envolve.agents.common.hyper import Hyper, budgets, column
from envolve.agents.common.rollout import make_world, repeat, reset_uniforms, reward_noise
from envolve.agents.common.sections import PPOSection
from envolve.agents.ppo import policy as ppo_policy
from envolve.agents.ppo.memory import RolloutMemory
from envolve.agents.ppo.policy import Nets
from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.task import Task


@dataclass
class PPOMembers:
    """Members still in training: fields [L], int64 unless noted."""

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

    def keep(self, index: Tensor) -> PPOMembers:
        return PPOMembers(*(getattr(self, f.name)[index] for f in fields(self)))

    @classmethod
    def create(cls, hyper: Hyper, worlds: Tensor, keys: Tensor, params: Tensor) -> PPOMembers:
        """Members before their first episodes, which ``Rollout.begin`` starts: ``state`` is not set yet. keys: int64
        [P]; worlds: float32 [P, W]; params: float32 [P, D], trained in place."""
        s: PPOSection = hyper.section  # type: ignore[assignment]
        device, P, N = keys.device, len(keys), s.num_envs

        def row(name: str) -> Tensor:
            return column(hyper, name, device).float()[:, None]

        zero = torch.zeros(P, dtype=torch.int64, device=device)
        none = torch.zeros(P, 1, device=device)
        lr, norm = column(hyper, "lr", device), row("max_grad_norm")
        return cls(
            row=torch.arange(P, device=device),
            world=worlds,
            explore=rng.fold(keys, rng.EXPLORE),
            shuffle=rng.fold(keys, rng.REPLAY),
            reset=rng.fold(keys, rng.RESET),
            test=rng.fold(keys, rng.TEST),
            reward=rng.fold(keys, rng.REWARD),
            lr=lr,
            rate=lr.clone(),
            gamma=row("gamma"),
            lam=row("gae_lambda") if s.advantage == "gae" else torch.ones_like(none),
            eps_clip=row("eps_clip"),
            vf_coef=row("vf_coef"),
            ent_coef=row("ent_coef"),
            max_grad_norm=torch.where(norm > 0, norm, torch.inf),
            budget=budgets(hyper, device),
            params=params,
            m=torch.zeros_like(params),
            v=torch.zeros_like(params),
            mean=none,
            std=none + 1,
            state=zero,
            t=zero[:, None].repeat(1, N),
            total=none.double().repeat(1, N),
            n=zero,
            episode=zero.clone(),
            updates=zero.clone(),
            live=zero == 0,
        )


class Rollout:
    """Plays members in their worlds and keeps the last T transitions of each environment."""

    def __init__(
        self, task: Task, kind: str, section: EnvSection, s: PPOSection, nets: Nets, T: int, cuda_graph: bool
    ) -> None:
        self.task, self.kind, self.section, self.s, self.nets, self.T = task, kind, section, s, nets, T
        self.decision = 0  # decisions of each environment since training began
        self.decide = Graphs(self._decide, cuda_graph)

    def allocate(self, m: PPOMembers) -> None:
        """Rebuilds the world and the rollout buffer for members ``m``."""
        self.m, L, N = m, len(m.row), self.s.num_envs
        self.complaints: Dict[int, str] = {}  # what the task says of members that failed on it, by their place in m
        F, A, std = self.task.observation_size, self.nets.actor.outputs, self.nets.std
        self.world = make_world(self.kind, self.task, self.section, m.world, m.gamma[:, 0])
        self.decide.forget()
        self.memory = RolloutMemory(self.T, L, N, F, A, std or 1, m.row.device, counted=True)
        self.step = torch.zeros(1, dtype=torch.int64, device=m.row.device)  # decisions of this rollout

    def begin(self) -> None:
        """Begins the first episodes."""
        self.m.state = self._resets(-1, 1)[0]

    def play(self) -> None:
        """Makes T decisions in every environment."""
        self.started = self.m.t.clone(), self.m.n.clone()
        self.step.zero_()
        for draw in zip(*self._draws()):
            self.decide(None, *draw)
        self.decision += self.T

    def _resets(self, decision: int, count: int) -> Tensor:
        """Start states [count, L, N, S] of episodes that begin after decisions d = ``decision`` ..: environment n draws
        the uniforms ((d + 1) N + n) R, ..."""
        N, R = self.s.num_envs, self.world.reset_uniforms
        number = torch.arange((decision + 1) * N, (decision + 1 + count) * N, device=self.m.row.device)
        u = reset_uniforms(self.m.reset, (number * R).expand(len(self.m.row), -1), R)
        state = self.world.reset(u)
        return state.unflatten(1, (count, N)).transpose(0, 1).contiguous()

    def _draws(self) -> Tuple[Tensor, Tensor, Tensor]:
        """Random numbers of a rollout: noise of actions [T, L, N, A], start states [T, L, N, S], and the numbers of the
        decisions [T, 1, N] for random rewards."""
        N, first = self.s.num_envs, self.decision * self.s.num_envs
        number = torch.arange(first, first + self.T * N, device=self.m.row.device).view(self.T, 1, N)
        noise = ppo_policy.noise(self.nets, self.m.explore[:, None, None], number)
        return noise, self._resets(self.decision, self.T), number

    def _decide(self, _: None, noise: Tensor, start: Tensor, number: Tensor) -> Tuple[Tensor, ...]:
        """Makes one decision in every environment; episodes that end are reset."""
        m, task, step = self.m, self.task, self.step
        obs = self.world.observe(m.state)
        action, remembered, out = ppo_policy.act(self.nets, m.params, obs, noise, task.max_action)
        skip = self.s.same_action_num
        first = number * skip - m.t  # of decision d of environment n, step i draws (d N + n) skip + i
        pays = (lambda t: reward_noise(self.world, m.reward, first + t)) if self.world.reward_noise else None
        state, reward, done, failed, t, over = repeat(self.world, m.state, action, m.t, skip, task.max_steps, pays)
        m.total += reward if self.world.reward_scale == 1.0 else reward / self.world.reward_scale
        now = torch.stack([x.float() for x in (reward, done > 0.5, over, failed, m.total, t)], 2)
        self.memory.write(step, torch.cat((obs, self.world.observe(state), out, remembered, now), 2))
        if self.kind != "se" and task.stops_itself:
            for i in failed.any(1).nonzero()[:, 0].tolist():
                self.complaints.setdefault(i, task.complaint(state[i]))
            task.release(state[over])
        m.state.copy_(torch.where(over.unsqueeze(-1), start, state))
        m.t.copy_(t.masked_fill_(over, 0))
        m.total.masked_fill_(over, 0)
        step += 1
        return ()
