"""Double DQN with a soft target update (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from envolve.agents.common.hyper import Hyper, column
from envolve.agents.common.population import Nets, adam
from envolve.agents.common.sections import DDQNSection
from envolve.agents.off_policy.algorithm import AgentRows, Algorithm
from envolve.core import rng
from envolve.envs.nets.networks import MLPShape, forward
from envolve.envs.task import Task


@dataclass
class DDQNRows(AgentRows):
    eps: Tensor  # float64 [L], as the next two
    eps_min: Tensor
    eps_decay: Tensor


class DDQN(Algorithm):
    """One net Q(s, .), explored epsilon-greedily; an action is stored as its index. Two draws per decision."""

    section_class = DDQNSection
    rows: DDQNRows

    @classmethod
    def nets_of(cls, task: Task, section: Any, hidden: int, layers: int) -> Nets:
        return (MLPShape(task.observation_size, task.num_actions, hidden, layers, section.activation_fn),)

    def initial_rows(self, hyper: Hyper, params: Tensor) -> DDQNRows:
        eps = (column(hyper, name, params.device) for name in ("eps_init", "eps_min", "eps_decay"))
        return DDQNRows(*self.common(hyper, params), *eps)

    def q(self, params: Tensor, obs: Tensor, weight: Optional[Tensor] = None) -> Tensor:
        """Q values [L, A, B]. params [L, D], obs [L, F, B]; weight: [L, B], 0 for samples that do not count."""
        return forward(self.nets[0], params, obs)

    def draws(self, key: Tensor, first: int, count: int) -> Tuple[Tensor, ...]:
        """Uniform numbers to compare with eps, and random actions."""
        counter = 2 * torch.arange(first, first + count, device=key.device)[:, None]
        actions = torch.tensor(self.task.num_actions, device=key.device)
        return rng.uniform(key, counter), rng.integer(key, counter + 1, actions)

    def explore(self, obs: Tensor, episode: Tensor, draw: Tuple[Tensor, ...]) -> Tuple[Tensor, Tensor]:
        u, random_action = draw
        action = torch.where((u < self.rows.eps.float())[:, None], random_action[:, None], self.greedy(obs))
        return action, action.to(obs.dtype)

    def greedy(self, obs: Tensor) -> Tensor:
        """Greedy action argmax_a Q(obs, a), the first among equals."""
        return self.q(self.rows.params, obs.transpose(1, 2)).max(1).indices

    def end_episodes(self, index: Tensor) -> None:
        r = self.rows
        r.eps[index] = torch.maximum(r.eps[index] * r.eps_decay[index], r.eps_min[index])

    def gradient(self, batch: Tensor, weight: Tensor) -> Tensor:
        """Gradient [L, D] of each member's loss: the sum over its batch of weight (Q(s, a) - y)^2 with y = r + gamma (1
        - d) Q_target(s', argmax_a Q(s', a))."""
        r = self.rows
        s, s_next, action, reward, done = self.split(batch)
        with torch.no_grad():
            best = self.q(r.params, s_next, weight).max(1, keepdim=True).indices  # max: argmax is 30 times slower here
            q_next = self.q(r.target, s_next, weight).gather(1, best)[:, 0]
            y = reward + r.gamma * (1 - done) * q_next
            taken = action == torch.arange(self.task.num_actions, device=batch.device)[:, None]
        leaf = r.params.detach().requires_grad_()
        q = self.q(leaf, s, weight)
        # dloss/dq = 2 weight (q - y) at the action taken and 0 elsewhere; autograd does the rest
        dq = (q.detach() - y[:, None]) * (2 * weight)[:, None] * taken
        return torch.autograd.grad(q, leaf, dq)[0]

    def update(
        self, batch: Tensor, weight: Tensor, learns: Tensor, updates: Tensor, noise_key: Tensor, actor: bool
    ) -> None:
        r = self.rows
        adam(r.params, self.gradient(batch, weight), r.m, r.v, updates, r.lr * learns)
        r.target.lerp_(r.params, r.tau)
