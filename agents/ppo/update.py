"""PPO updates of a population from a rollout: returns, and Adam on epochs of minibatches.

Axes: T decisions, L members still in training, N environments, B minibatch, A actions, F features, D parameters.
"""

from __future__ import annotations

from typing import Callable, Optional, Protocol, Tuple

import torch
from torch import Tensor

from envolve.agents.common.cuda_graph import Graphs
from envolve.agents.common.denormals import without_denormals
from envolve.agents.common.icm import ICM
from envolve.agents.common.population import adam
from envolve.agents.common.sections import PPOSection
from envolve.agents.ppo import policy as ppo_policy
from envolve.agents.ppo.memory import RolloutMemory, samples
from envolve.agents.ppo.policy import Coefficients, Nets
from envolve.agents.ppo.returns import lambda_returns, normalise
from envolve.agents.ppo.rollout import PPOMembers
from envolve.core import rng
from envolve.envs.nets.networks import forward
from envolve.envs.task import Task

RETURN_EPSILON = 1e-5  # of the normalisation of Monte Carlo returns


class Played(Protocol):
    """Samples of a rollout of ``agents/ppo/rollout.py`` or ``agents/shaped/ppo_torch.py``."""

    memory: RolloutMemory
    started: Tuple[Tensor, Tensor]  # [1]: int64 [L], environment steps before


class Epochs:
    """Updates between two rollouts."""

    def __init__(self, task: Task, s: PPOSection, nets: Nets, T: int, icm: Optional[ICM], cuda_graph: bool) -> None:
        self.task, self.s, self.nets, self.T, self.icm = task, s, nets, T, icm
        self.epoch = 0  # since training began
        self.update = Graphs(self._update, cuda_graph)

    def allocate(self, m: PPOMembers) -> None:
        """Allocates the samples of members ``m``, which learn from now on."""
        self.m, L, N, F = m, len(m.row), self.s.num_envs, self.task.observation_size
        self.update.forget()
        # what an update reads of a rollout: s, action, log pi(a | s), return, V(s)
        self.samples = torch.zeros(L, self.T * N, F + (self.nets.std or 1) + 3, device=m.row.device)

    @without_denormals()
    def learn(self, rollout: Played, before: Optional[Callable[[Tensor], None]] = None) -> None:
        """All epochs on one rollout, and the curiosity module's update. before: called with a minibatch's indices
        before each update."""
        self._prepare(rollout)
        for _ in range(self.s.ppo_epochs):
            for index in self.minibatches(self.epoch):
                if before is not None:
                    before(index)
                self.update(None, index)
            self.epoch += 1
        self._learn_curiosity(rollout)

    def _prepare(self, rollout: Played) -> None:
        """Computes returns, values and log-probabilities of the rollout into ``samples``."""
        m, s, nets, parts = self.m, self.s, self.nets, rollout.memory.parts
        obs, next_obs, out, action = (samples(x) for x in (parts.obs, parts.next_obs, parts.out, parts.action))
        reward, terminated, over = (samples(x) for x in (parts.reward, parts.terminated, parts.over))

        def by_time(x: Tensor) -> Tensor:
            return x.view(len(x), self.T, -1).transpose(0, 1)

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
            m.rate.copy_(m.lr * (1 - rollout.started[1] / m.budget).clamp(min=0))  # shaped runs go on after it

    def minibatches(self, epoch: int) -> Tuple[Tensor, ...]:
        """Indices of samples int64 [L B], one tensor per minibatch: a random order, cut into parts; the remainder is
        not used.

        The order is that of hashes: (bits of counter epoch T N + i) with its lowest bits replaced by i; sorted as
        positive integers. epoch: how many there were before, since training began.
        """
        L, count = self.samples.shape[:2]
        base = torch.arange(L, device=self.m.row.device)[:, None] * count
        if self.s.minibatches == 1:
            return (torch.empty(0, device=self.m.row.device),)
        first = epoch * count
        i = torch.arange(count, device=self.m.row.device)
        low = (1 << (count - 1).bit_length()) - 1
        hashed = rng.bits(self.m.shuffle[:, None], first + i).bitwise_and_(~low & (2**63 - 1)).bitwise_or_(i)
        order = hashed.sort(dim=1).values.bitwise_and_(low).add_(base)
        B = count // self.s.minibatches
        return tuple(order[:, b * B : (b + 1) * B].flatten() for b in range(self.s.minibatches))

    def _update(self, _: None, index: Tensor) -> Tuple[Tensor, ...]:
        """One Adam step on the samples ``index`` (empty: on all samples)."""
        m, s, nets = self.m, self.s, self.nets
        L, C = self.samples.shape[0], self.samples.shape[2]
        batch = self.samples
        if len(index):
            batch = batch.view(-1, C).index_select(0, index).view(L, -1, C)
        batch = batch.transpose(1, 2).contiguous()  # three times faster than strided columns
        F = nets.actor.inputs
        gradient = ppo_policy.gradient(
            nets,
            m.params,
            batch[:, :F],
            batch[:, F:-3],
            batch[:, -3],
            batch[:, -2],
            batch[:, -1],
            Coefficients(m.eps_clip, m.vf_coef, m.ent_coef),
            s,
            self.task.max_action,
        )
        if s.max_grad_norm:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient *= (m.max_grad_norm / (norm + 1e-6)).clamp(max=1)
        m.updates += 1
        adam(m.params, gradient, m.m, m.v, m.updates, m.rate, s.adam_eps)
        return ()

    def _learn_curiosity(self, rollout: Played) -> None:
        """One update of the curiosity module on the rollout, after the policy's, as in the original."""
        if self.icm is not None:
            parts = rollout.memory.parts
            obs, next_obs, action = (samples(x) for x in (parts.obs, parts.next_obs, parts.action))
            L, _, count = obs.shape
            self.icm.update(obs, next_obs, action, obs.new_full((L, count), 1 / count))
