"""The PyTorch path of ``agents/shaped/ppo.py``: candidates of equal observation and action width learn as one batch.

It is what runs on a GPU, and what the compiled path (``agents/kernels/shaped/ppo.py``) is tested against.

Axes: P candidates, L of them in a group, T decisions, N environments, A actions, F features, D parameters.
"""

from __future__ import annotations

from typing import Collection, Dict, List, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.normaliser import CLIP, Moments
from envolve.agents.common.sections import PPOSection
from envolve.agents.ppo import policy as ppo_policy
from envolve.agents.ppo.memory import RolloutMemory
from envolve.agents.ppo.policy import Nets
from envolve.agents.ppo.rate import adapted
from envolve.agents.ppo.rollout import PPOMembers
from envolve.agents.ppo.update import Epochs
from envolve.agents.shaped.ppo_policy import STD_FLOOR, create, spaces
from envolve.envs.shaping.envs import Step


class Group:
    """Candidates ``rows`` of the population, learning as one batch."""

    def __init__(self, section: PPOSection, rows: Tensor, F: int, A: int, keys: Tensor, device: torch.device) -> None:
        """keys: int64 [L]."""
        self.s, self.rows, self.F, self.A = section, rows, F, A
        T, N, L = section.rollout_steps, section.num_envs, len(rows)
        agents = [create(section, F, A, key) for key in keys.tolist()]
        self.nets = Nets(A, *agents[0][0])
        params = torch.as_tensor(np.stack([weights for _, weights in agents]), device=device)
        keys = keys.to(device)
        self.m = PPOMembers.create(draw(section, keys.cpu().numpy()), torch.zeros(L, 1, device=device), keys, params)
        self.epochs = Epochs(spaces(F, A), section, self.nets, T, None, device.type == "cuda")
        self.epochs.allocate(self.m)
        self.memory = RolloutMemory(T, L, N, F, A, A, device)
        self.seen, self.paid = Moments(L, F, device), Moments(L, 1, device)
        self.discount = torch.full((L, 1), section.gamma, dtype=torch.float64, device=device)
        self.discounted = torch.zeros(L, N, dtype=torch.float64, device=device)  # returns, of ``paid``
        self.started = self.m.t, self.m.n  # the latter: environment steps before the rollout

    def keep(self, index: Tensor) -> None:
        """Keeps only these members."""
        self.rows = self.rows[index]
        self.memory.keep(index)
        self.discount, self.discounted = self.discount[index], self.discounted[index]
        self.seen.keep(index)
        self.paid.keep(index)
        self.m = self.m.keep(index)
        self.epochs.allocate(self.m)

    def inherit(self, other: Group, index: Tensor) -> None:
        """Copies the state of member index[l] of ``other``, with rows of another population, to member l."""
        for name in ("lr", "rate", "params", "m", "v", "mean", "std", "updates"):
            getattr(self.m, name).copy_(getattr(other.m, name)[index])
        for own, theirs in ((self.seen, other.seen), (self.paid, other.paid)):
            own.count, own.mean, own.squares = theirs.count, theirs.mean[index], theirs.squares[index]
        self.epochs.epoch = other.epochs.epoch

    def normalised(self, obs: Tensor) -> Tensor:
        """Own observations: [P, N, F_max] -> [L, N, F]."""
        obs = obs[self.rows, :, : self.F]
        return self.seen.normalise(obs) if self.s.normalise_obs else obs

    def act(self, obs: Tensor, decision: int, t: int) -> Tensor:
        """Actions of decision t of the rollout, number ``decision`` of the training -> [L, N, A]."""
        first = decision * self.s.num_envs
        number = torch.arange(first, first + self.s.num_envs, device=obs.device)[None]
        noise = ppo_policy.noise(self.nets, self.m.explore[:, None, None], number)
        x = self.normalised(obs)
        if self.s.normalise_obs:
            self.seen.add(obs[self.rows, :, : self.F])
        action, drawn, out = ppo_policy.act(self.nets, self.m.params, x, noise, 1.0)
        parts = self.memory.parts
        parts.obs[t], parts.out[t], parts.action[t] = x, out, drawn
        return action

    def record(self, step: Step, t: int) -> None:
        terminated = step.terminated[self.rows]
        over = terminated | step.truncated[self.rows]
        self.remember(step.reward[self.rows], terminated, over, step.last_obs, t)

    def remember(self, reward: Tensor, terminated: Tensor, over: Tensor, led: Tensor, t: int) -> None:
        """Stores the outcome of decision t: [L, N], led: [P, N, F_max]."""
        if self.s.normalise_reward:
            self.discounted.mul_(self.discount).add_(reward)
            self.paid.add(self.discounted[:, :, None])
            self.discounted.masked_fill_(over, 0)
        parts = self.memory.parts
        parts.next_obs[t] = self.normalised(led)
        parts.reward[t, :, :, 0], parts.terminated[t, :, :, 0], parts.over[t, :, :, 0] = reward, terminated, over

    def learn(self, before: int) -> None:
        """Learns from the rollout. With normalised observations, the first rollout only fills the normaliser."""
        s, m = self.s, self.m
        self.started = m.t, torch.full_like(m.n, before)
        learns = not s.normalise_obs or self.seen.count > 0
        if s.normalise_reward:
            self.paid.merge()
            reward = self.memory.parts.reward
            reward.mul_(self.paid.scale[:, :, None]).clamp_(-CLIP, CLIP)
        if learns:
            each = s.desired_kl > 0 and s.kl_after == "update"
            self.epochs.learn(self, self._adapt if each else None)
            m.params[:, : self.A].clamp_(min=STD_FLOOR)
            if s.desired_kl and not each:
                self._adapt(self.epochs.minibatches(self.epochs.epoch - 1)[0])  # the last epoch's first
        if s.normalise_obs:
            self.seen.merge()

    def _adapt(self, index: Tensor) -> None:
        """Adapts the learning rates to how far the policies moved, as seen on the samples ``index``."""
        samples, C = self.epochs.samples, self.epochs.samples.shape[2]
        if len(index):
            samples = samples.view(-1, C).index_select(0, index).view(len(samples), -1, C)
        samples = samples.transpose(1, 2)
        _, actor, _ = self.nets.split(self.m.params)
        out = ppo_policy.forward(self.nets.actor, actor, samples[:, : self.F])
        logp = ppo_policy.log_prob(self.nets, self.m.params, out, samples[:, self.F : -3], 1.0)
        log_rho = (logp - samples[:, -3]).double()
        divergence = (log_rho.expm1() - log_rho).mean(1)
        self.m.rate.copy_(adapted(self.m.rate, divergence, self.s.desired_kl))


class PyTorchBackend:
    """All batches. See ``envolve.agents.shaped.ppo.Backend``."""

    def __init__(
        self, section: PPOSection, widths: Sequence[Tuple[int, int]], keys: Tensor, device: torch.device, threads: int
    ) -> None:
        """widths: (F, A) of each candidate; keys: int64 [P]. threads: unused; PyTorch has its own setting."""
        self.section, self.action_size, self.device = section, max(A for _, A in widths), device
        alike: Dict[Tuple[int, int], List[int]] = {}
        for i, width in enumerate(widths):
            alike.setdefault(width, []).append(i)
        self.groups = [
            Group(section, torch.tensor(rows, device=device), F, A, keys[rows], device)
            for (F, A), rows in alike.items()
        ]
        self.left: Dict[int, Tuple[Tensor, Tensor, Tensor]] = {}  # policies of candidates that are out
        self.diverged = torch.zeros(len(widths), dtype=torch.bool, device=device)

    def act(self, obs: Tensor, decision: int, t: int) -> Tensor:
        action = obs.new_zeros(obs.shape[:2] + (self.action_size,))
        for group in self.groups:
            action[group.rows, :, : group.A] = group.act(obs, decision, t)
        return action

    def record(self, step: Step, t: int) -> None:
        for group in self.groups:
            group.record(step, t)

    def learn(self, before: int) -> None:
        for group in self.groups:
            group.learn(before)
        for group in list(self.groups):
            diverged = group.rows[~torch.isfinite(group.m.params).all(1)]
            self.diverged[diverged] = True
            self.drop(diverged.tolist())

    def mean_action(self, obs: Tensor) -> Tensor:
        action = obs.new_zeros(obs.shape[:2] + (self.action_size,))
        for group in self.groups:
            _, actor, _ = group.nets.split(group.m.params)
            out = ppo_policy.forward_few(group.nets.actor, actor, group.normalised(obs))
            action[group.rows, :, : group.A] = torch.tanh(out)
        return action

    def policy(self, i: int) -> Tuple[Tensor, Tensor, Tensor]:
        if i in self.left:
            return self.left[i]
        for group in self.groups:
            for j in (group.rows == i).nonzero()[:, 0].tolist():
                seen = group.seen
                return group.m.params[j].cpu().clone(), seen.mean[j].float().cpu(), seen.scale[j].cpu().clone()
        raise IndexError(f"no candidate {i}: there are {len(self.diverged)}")

    def inherit(self, other: PyTorchBackend, rows: Sequence[int]) -> None:
        for group in self.groups:
            wanted = [rows[i] for i in group.rows.tolist()]
            for old in other.groups:
                at = {row: k for k, row in enumerate(old.rows.tolist())}
                if wanted[0] in at:
                    group.inherit(old, torch.tensor([at[row] for row in wanted], device=self.device))

    def drop(self, out: Collection[int]) -> None:
        for group in list(self.groups):
            rows = group.rows.tolist()
            stays = [i not in out for i in rows]
            self.left.update({i: self.policy(i) for i, stay in zip(rows, stays) if not stay})
            if not any(stays):
                self.groups.remove(group)
            elif not all(stays):
                group.keep(torch.tensor(stays, device=self.device).nonzero()[:, 0])
