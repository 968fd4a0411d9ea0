"""TD3 for discrete actions: the actor's output goes through a Gumbel softmax (Jang et al. 2017,
https://arxiv.org/abs/1611.01144), as in the paper on synthetic environments (https://arxiv.org/abs/2202.02790)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Tuple

import torch
from torch import Tensor

from envolve.agents.common.hyper import Hyper, column
from envolve.agents.common.sections import TD3DiscreteSection
from envolve.agents.off_policy.td3 import TD3, TD3Rows
from envolve.core import rng
from envolve.envs.nets.networks import forward

LAST_TEMPERATURE = 1 / 20  # as a share of the first


@dataclass
class TD3DiscreteRows(TD3Rows):
    learned: Tensor  # int64 [L], updates so far
    temperature: Tensor  # float32 [L], the first
    anneal_updates: Tensor  # float32 [L]


class TD3Discrete(TD3):
    """An action is a vector over the A actions, softmax((logits + Gumbel noise) / T), to which noise is added.

    Replay and critics hold the vector, the world gets its largest entry. With ``gumbel_softmax_hard`` it is one-hot,
    with the gradient of the soft one. The target's action is a sample of the target actor with clipped noise, not
    clipped itself. T falls linearly by the number of updates, from gumbel_softmax_temp to a twentieth of it. With
    ``use_layer_norm`` all three nets have a layer norm, each its own.

    Random numbers: 2 A + 1 per decision: Gumbel, normal, the random action. Update u (from 1), sample i, action j have
    the counters (65536 u + i) 3 A + j for the Gumbel noise of the target's action, + A for the normal one, + 2 A for
    the Gumbel noise of the actor's own.
    """

    section_class = TD3DiscreteSection
    actions = "discrete"
    section: TD3DiscreteSection
    rows: TD3DiscreteRows
    noises = 3

    def initial_rows(self, hyper: Hyper, params: Tensor) -> TD3DiscreteRows:
        schedule = (column(hyper, name, params.device).float() for name in ("gumbel_softmax_temp", "anneal_updates"))
        learned = torch.zeros(len(params), dtype=torch.int64, device=params.device)
        return TD3DiscreteRows(*self.td3_fields(hyper, params), *(learned, *schedule))

    def logits(self, actor: Tensor, s: Tensor) -> Tensor:
        """Logits of the actor: s [L, F, B] -> [L, A, B]."""
        return forward(self.nets[0], actor, s, self.width)

    def soft(self, logits: Tensor, gumbel: Tensor) -> Tensor:
        """Soft sample softmax((logits + gumbel) / T) over the actions, [L, A, B], at the current temperature."""
        r = self.rows
        passed = (r.learned / r.anneal_updates).clamp(max=1)
        inverse = 1 / (r.temperature * (1 - (1 - LAST_TEMPERATURE) * passed))
        return torch.softmax((logits + gumbel) * inverse[:, None, None], dim=1)

    def sampled(self, soft: Tensor) -> Tensor:
        """Vector used for a soft sample: the sample itself, or with ``gumbel_softmax_hard`` its one-hot form."""
        if not self.section.gumbel_softmax_hard:
            return soft
        actions = torch.arange(self.A, device=soft.device)[:, None]
        return (actions == soft.max(1, keepdim=True).indices).to(soft.dtype)

    # ------------------------------------------------------------------------------------------------------- acting

    def draws(self, key: Tensor, first: int, count: int) -> Tuple[Tensor, ...]:
        """Gumbel and normal noise [count, L, A], random actions [count, L]."""
        device, A = key.device, self.A
        decision = torch.arange(first, first + count, device=device)[:, None] * (2 * A + 1)
        counter = decision[:, :, None] + torch.arange(A, device=device)
        gumbel, normal = rng.gumbel(key[:, None], counter), rng.normal(key[:, None], counter + A)
        return gumbel, normal, rng.integer(key, decision + 2 * A, torch.tensor(A, device=device))

    def explore(self, obs: Tensor, episode: Tensor, draw: Tuple[Tensor, ...]) -> Tuple[Tensor, Tensor]:
        """Actions: one-hot random ones before ``init_episodes``, then samples of the actor with noise."""
        gumbel, normal, random_action = draw
        vector = self.noisy_vector(obs, gumbel[:, :, None], normal[:, :, None])[:, :, 0]
        one_hot = (random_action[:, None] == torch.arange(self.A, device=obs.device)).to(vector.dtype)
        vector = torch.where((episode < self.section.init_episodes)[:, None], one_hot, vector)
        return vector.max(1, keepdim=True).indices, vector

    def noisy_vector(self, obs: Tensor, gumbel: Tensor, normal: Tensor) -> Tensor:
        """Exploring action vectors [L, A, N]. obs [L, N, F], gumbel and normal [L, A, N]."""
        logits = self.logits(self.parts(self.rows.params)[0], obs.transpose(1, 2))
        return self.sampled(self.soft(logits, gumbel)) + normal * self.rows.action_std[:, :, None]

    def greedy(self, obs: Tensor) -> Tensor:
        """Greedy action: the largest logit."""
        return self.logits(self.parts(self.rows.params)[0], obs.transpose(1, 2)).max(1).indices

    def test_action(self, obs: Tensor, key: Tensor, counter: Tensor) -> Tensor:
        """Test actions: greedy; with ``test_noise`` as in training, step c with the counters 2 A c + j (Gumbel) and + A
        (normal)."""
        if not self.section.test_noise:
            return self.greedy(obs)
        number = counter[:, None] * (2 * self.A) + torch.arange(self.A, device=key.device)[:, None]
        key = key[:, None, None]
        return self.noisy_vector(obs, rng.gumbel(key, number), rng.normal(key, number + self.A)).max(1).indices

    # ------------------------------------------------------------------------------------------------------- update

    def update(
        self, batch: Tensor, weight: Tensor, learns: Tensor, updates: Tensor, noise_key: Tensor, actor: bool
    ) -> None:
        super().update(batch, weight, learns, updates, noise_key, actor)
        self.rows.learned += learns

    @torch.no_grad()
    def target_action(self, s_next: Tensor, noise_key: Tensor, updates: Tensor) -> Tensor:
        B = s_next.shape[2]
        gumbel = rng.gumbel(*self.update_counters(noise_key, updates, B, 0))
        soft = self.soft(self.logits(self.parts(self.rows.target)[0], s_next), gumbel)
        return self.sampled(soft) + self.target_noise(noise_key, updates, B, 1)

    def differentiable_action(
        self, leaf: Tensor, s: Tensor, noise_key: Tensor, updates: Tensor
    ) -> Tuple[Tensor, Tensor]:
        gumbel = rng.gumbel(*self.update_counters(noise_key, updates, s.shape[2], 2))
        soft = self.soft(self.logits(leaf, s), gumbel)
        return soft, self.sampled(soft.detach())
