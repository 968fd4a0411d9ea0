"""Soft actor-critic with automatic temperature (Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905), for a
population and any number of actions.

The policy is a squashed Gaussian, a = max_action tanh(u), u = mean(s) + std(s) n, n ~ N(0, 1). Its log-probability is
the density of tanh(u), so that the target entropy -action_size means the same whatever the unit of the actions.

Random numbers: decision d uses counter d A + j of stream EXPLORE for action j. Update u (from 1) uses, for sample i and
action j, counter (u 65536 + i) 2 A + j of stream UPDATE for the action at s', and that + A for the actor's at s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Tuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from envolve.agents.common.hyper import Hyper, column
from envolve.agents.common.population import Nets, adam
from envolve.agents.common.sections import SACSection
from envolve.agents.off_policy.algorithm import AgentRows, Algorithm
from envolve.core import rng
from envolve.envs.nets.networks import MLPShape, forward
from envolve.envs.task import Task


@dataclass
class SACRows(AgentRows):
    log_alpha: Tensor  # float32 [L, 1], logarithm of the temperature
    alpha_m: Tensor  # [L, 1], its moments
    alpha_v: Tensor


class SAC(Algorithm):
    """Nets: the actor, s -> (mean, log std), and two critics, (s, a) -> Q(s, a). An action is stored as it is."""

    section_class = SACSection
    actions = "continuous"
    action_columns = 0
    rows: SACRows
    section: SACSection

    @classmethod
    def nets_of(cls, task: Task, section: Any, hidden: int, layers: int) -> Nets:
        F, A, act = task.observation_size, task.action_size, section.activation_fn
        critic = MLPShape(F + A, 1, hidden, layers, act)
        return MLPShape(F, 2 * A, hidden, layers, "identity" if section.linear_policy else act), critic, critic

    def initial_rows(self, hyper: Hyper, params: Tensor) -> SACRows:
        log_alpha = column(hyper, "alpha", params.device).log().float()[:, None]
        temperature = [log_alpha, torch.zeros_like(log_alpha), torch.zeros_like(log_alpha)]
        return SACRows(*self.common(hyper, params), *temperature)

    # ------------------------------------------------------------------------------------------------------ acting

    def gaussian(self, actor: Tensor, obs: Tensor) -> Tuple[Tensor, Tensor]:
        """Mean and clamped log standard deviation of u, [L, A, B]. actor [L, D], obs [L, F, B]."""
        mean, log_std = forward(self.nets[0], actor, obs).chunk(2, dim=1)
        return mean, log_std.clamp(self.section.log_std_min, self.section.log_std_max)

    def sample(self, actor: Tensor, obs: Tensor, noise: Tensor) -> Tuple[Tensor, Tensor]:
        """Samples actions [L, A, B] with log-probabilities [L, B]. actor [L, D], obs [L, F, B], noise [L, A, B],
        standard normal."""
        mean, log_std = self.gaussian(actor, obs)
        u = mean + log_std.exp() * noise
        # log N(u; mean, std) = -n^2 / 2 - log std - log(2 pi) / 2, and by tanh's slope
        # -log(1 - tanh(u)^2) = -2 (log 2 - u - softplus(-2 u)), which does not cancel where tanh(u) nears 1
        log_prob = -0.5 * (noise.square() + math.log(2 * math.pi)) - log_std - 2 * (math.log(2) - u - softplus(-2 * u))
        return torch.tanh(u) * self.task.max_action, log_prob.sum(1)

    def draws(self, key: Tensor, first: int, count: int) -> Tuple[Tensor, ...]:
        """Draws one random number per decision and action, used either as uniform or as normal."""
        A = self.task.action_size
        decision = torch.arange(first, first + count, device=key.device)[:, None, None]
        counter = decision * A + torch.arange(A, device=key.device)
        return rng.uniform(key[:, None], counter), rng.normal(key[:, None], counter)

    def explore(self, obs: Tensor, episode: Tensor, draw: Tuple[Tensor, ...]) -> Tuple[Tensor, Tensor]:
        """Actions: uniform in the first episodes, then from the policy."""
        u, noise = draw
        L, N, _ = obs.shape
        action, _ = self.sample(self.actor(self.rows.params), obs.transpose(1, 2), noise.view(L, N, -1).transpose(1, 2))
        random = (2 * u - 1) * self.task.max_action
        first = (episode < self.section.init_episodes)[:, None]
        action = torch.where(first, random, action.transpose(1, 2).flatten(1))
        return action.view(L, N, -1), action

    def greedy(self, obs: Tensor) -> Tensor:
        mean, _ = self.gaussian(self.actor(self.rows.params), obs.transpose(1, 2))
        return torch.tanh(mean).transpose(1, 2) * self.task.max_action

    # ----------------------------------------------------------------------------------------------------- learning

    def actor(self, flat: Tensor) -> Tensor:
        """Actor's part of flat [L, D], a view."""
        return flat[:, : self.nets[0].size]

    def critics(self, flat: Tensor) -> Tensor:
        """Part of both critics, a view."""
        return flat[:, self.nets[0].size :]

    def q(self, critics: Tensor, obs: Tensor, action: Tensor) -> Tuple[Tensor, Tensor]:
        """Q_1 and Q_2, [L, B]. obs [L, F, B], action [L, A, B]."""
        x, half = torch.cat((obs, action), dim=1), self.nets[1].size
        first, second = critics.split(half, dim=1)
        return forward(self.nets[1], first, x)[:, 0], forward(self.nets[2], second, x)[:, 0]

    def noise(self, key: Tensor, update: Tensor, batch: int) -> Tuple[Tensor, Tensor]:
        """Standard normal noise of an update: for the actions at s' and for those at s, [L, A, B] each."""
        W = 2 * self.task.action_size
        first = rng.advance(key, update * (65536 * W))[:, None, None]
        i, j = torch.arange(batch, device=key.device), torch.arange(W, device=key.device)[:, None]
        at_next, at_s = rng.normal(first, i * W + j).chunk(2, dim=1)
        return at_next, at_s

    def critic_gradient(self, batch: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
        """Gradient of the critics' loss: the sum over critics k and samples of weight (Q_k(s, a) - y)^2 with y = r +
        gamma (1 - d) (min_k Q_target,k(s', a') - alpha log pi(a' | s')), a' ~ pi(s')."""
        r = self.rows
        s, s_next, action, reward, done = self.split(batch)
        with torch.no_grad():
            a_next, log_prob = self.sample(self.actor(r.params), s_next, noise)
            q_next = torch.minimum(*self.q(self.critics(r.target), s_next, a_next)) - r.log_alpha.exp() * log_prob
            y = reward + r.gamma * (1 - done) * q_next
        leaf = self.critics(r.params).detach().requires_grad_()
        q = self.q(leaf, s, action)
        return torch.autograd.grad(q, leaf, [(q_k.detach() - y) * (2 * weight) for q_k in q])[0]

    def actor_gradient(self, s: Tensor, weight: Tensor, noise: Tensor) -> Tuple[Tensor, Tensor]:
        """Gradient of the actor's loss, the sum over samples of weight (alpha log pi(a | s) - min_k Q_k(s, a)), a ~
        pi(s), and the log-probabilities [L, B]. The critics are constant: autograd skips their weights."""
        r = self.rows
        leaf = self.actor(r.params).detach().requires_grad_()
        action, log_prob = self.sample(leaf, s, noise)
        q = torch.minimum(*self.q(self.critics(r.params), s, action))
        grad = torch.autograd.grad((log_prob, q), leaf, (r.log_alpha.exp() * weight, -weight))[0]
        return grad, log_prob.detach()

    def temperature_gradient(self, weight: Tensor, log_prob: Tensor) -> Tensor:
        """Gradient [L, 1] of -log alpha (log pi + target entropy), the batch mean, by log alpha. As in the authors'
        code, log alpha replaces alpha."""
        return (weight * (self.task.action_size - log_prob)).sum(1, keepdim=True)

    def rates(self, learns: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """Learning rates of the critics, the actor and the temperature, [L]; learns: bool [L]."""
        lr = self.rows.lr * learns
        return lr, lr, lr

    def update(
        self, batch: Tensor, weight: Tensor, learns: Tensor, updates: Tensor, noise_key: Tensor, actor: bool
    ) -> None:
        """One update: critics, then the actor with the new critics, then the temperature, then the target critics."""
        r = self.rows
        at_next, at_s = self.noise(noise_key, updates, batch.shape[2])
        lr, actor_lr, alpha_lr = self.rates(learns)
        p, m, v = (self.critics(flat) for flat in (r.params, r.m, r.v))
        adam(p, self.critic_gradient(batch, weight, at_next), m, v, updates, lr)
        grad, log_prob = self.actor_gradient(self.split(batch)[0], weight, at_s)
        adam(self.actor(r.params), grad, self.actor(r.m), self.actor(r.v), updates, actor_lr)
        if self.section.automatic_entropy_tuning:
            adam(r.log_alpha, self.temperature_gradient(weight, log_prob), r.alpha_m, r.alpha_v, updates, alpha_lr)
        self.critics(r.target).lerp_(p, r.tau)
