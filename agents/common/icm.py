"""Curiosity: the intrinsic curiosity module (Pathak et al. 2017, https://arxiv.org/abs/1705.05363) as an add-on.

It learns features phi of observations in which a transition's action can be told (the inverse model) and a forward
model predicts the next features. Where the prediction is bad the agent has not been often, and is paid for coming:

    reward += eta mean_j (phi(s')_j - prediction_j)^2

One Adam minimises (1 - beta) inverse loss + beta mean_j (phi(s')_j - prediction_j)^2; both terms shape the features.
The nets are those of the original code: all members have the same, so nothing is padded.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import List, Tuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, leaky_relu

from envolve.agents.common.population import adam
from envolve.agents.common.sections import ICMSection
from envolve.agents.off_policy.algorithm import Rows
from envolve.core import rng
from envolve.envs.nets.networks import LEAKY_SLOPE, MLPShape, forward, init_flat
from envolve.envs.task import Task

BLOCKS = 4  # residual blocks of the forward model


@dataclass
class ICMRows(Rows):
    params: Tensor  # float32 [L, D]
    m: Tensor  # Adam's moments
    v: Tensor
    updates: Tensor  # int64 [L]


class ICM:
    """Curiosity modules of L members."""

    def __init__(self, task: Task, section: ICMSection, keys: Tensor) -> None:
        """keys: int64 [L], random keys of the members."""
        self.section, self.num_actions = section, task.num_actions
        F, A, feature, hidden = task.observation_size, task.action_inputs, section.feature_dim, section.hidden_size
        guesses = 1 if task.num_actions == 2 else A  # of two actions the original's inverse model predicts one logit
        self.phi = MLPShape(F, feature, hidden, 2, "leakyrelu")
        self.inverse = MLPShape(2 * feature, guesses, hidden, 2, "relu")  # phi(s), phi(s') -> action
        self.first = MLPShape(feature + A, hidden, hidden, 1, "leakyrelu")  # phi(s), action -> x
        self.last = MLPShape(hidden, feature, hidden, 1, "leakyrelu")  # x -> prediction of phi(s')
        self.linear = (hidden + A, hidden)  # inputs and outputs of each of the 2 BLOCKS layers in between
        nets = [self.phi, self.inverse, self.first, self.last]
        inner = (self.linear[0] + 1) * hidden
        self.sizes = [net.size for net in nets] + [inner] * (2 * BLOCKS)
        offsets = list(itertools.accumulate([0] + self.sizes))
        key = rng.fold(rng.fold(keys, rng.INIT), rng.UPDATE)  # apart from the agent's own initial weights
        params = [init_flat(net, key, offset) for net, offset in zip(nets, offsets)]
        u = rng.uniform(key[:, None], torch.arange(offsets[4], offsets[-1], device=key.device))
        params.append((2 * u - 1) * self.linear[0] ** -0.5)  # as init_flat
        flat = torch.cat(params, dim=1)
        self.rows = ICMRows(flat, torch.zeros_like(flat), torch.zeros_like(flat), torch.zeros_like(keys))

    def keep(self, index: Tensor) -> None:
        """Keeps only these members."""
        self.rows = self.rows.keep(index)

    def losses(self, params: Tensor, s: Tensor, s_next: Tensor, action: Tensor) -> Tuple[Tensor, Tensor]:
        """Inverse and forward loss of every transition, [L, B] each. params [L, D]; s, s_next [L, F, B]; action [L, 1,
        B] (an index) or [L, A, B]."""
        phi_flat, inverse_flat, *forward_flats = params.split(self.sizes, dim=1)
        B = s.shape[2]
        phi, phi_next = forward(self.phi, phi_flat, torch.cat((s, s_next), dim=2)).split(B, dim=2)
        guess = forward(self.inverse, inverse_flat, torch.cat((phi, phi_next), dim=1))
        code = action
        if self.num_actions:
            code = (action == torch.arange(self.num_actions, device=s.device)[:, None]).to(s.dtype)
        if self.num_actions == 2:
            inverse = binary_cross_entropy_with_logits(guess, action, reduction="none")[:, 0]
        elif self.num_actions:
            inverse = -(code * guess.log_softmax(1)).sum(1)
        else:
            inverse = (guess - action).square().mean(1)
        return inverse, (phi_next - self._predict(forward_flats, phi, code)).square().mean(1)

    def _predict(self, flats: List[Tensor], phi: Tensor, code: Tensor) -> Tensor:
        """Predicts phi(s') from phi(s) [L, feature, B] and the action's code [L, A, B]."""
        first, last, *inner = flats
        x = forward(self.first, first, torch.cat((phi, code), dim=1))
        for w1, w2 in zip(inner[::2], inner[1::2]):  # x <- x + W2 [leakyrelu(W1 [x, a]), a]
            y = leaky_relu(self._linear(w1, torch.cat((x, code), dim=1)), LEAKY_SLOPE)
            x = x + self._linear(w2, torch.cat((y, code), dim=1))
        return forward(self.last, last, x)

    def _linear(self, flat: Tensor, x: Tensor) -> Tensor:
        K, M = self.linear
        weight, bias = flat.split([K * M, M], dim=1)
        return torch.baddbmm(bias.unsqueeze(2), weight.reshape(-1, K, M).transpose(1, 2), x)

    def gradient(self, s: Tensor, s_next: Tensor, action: Tensor, weight: Tensor) -> Tensor:
        """Gradient [L, D] of each member's loss, the sum of its transitions' losses weighted by weight [L, B]."""
        beta = self.section.beta
        leaf = self.rows.params.detach().requires_grad_()
        inverse, error = self.losses(leaf, s, s_next, action)
        return torch.autograd.grad(((1 - beta) * inverse + beta * error).mul(weight).sum(), leaf)[0]

    def update(self, s: Tensor, s_next: Tensor, action: Tensor, weight: Tensor) -> None:
        """One Adam step, in place, for the members with any weight."""
        r, learns = self.rows, weight.sum(1) > 0
        r.updates += learns
        lr = self.section.lr * learns.double()
        adam(r.params, self.gradient(s, s_next, action, weight), r.m, r.v, r.updates.clamp(min=1), lr)

    @torch.no_grad()
    def reward(self, s: Tensor, s_next: Tensor, action: Tensor) -> Tensor:
        """Intrinsic reward eta mean_j (phi(s')_j - prediction_j)^2, float32 [L, B]."""
        return self.section.eta * self.losses(self.rows.params, s, s_next, action)[1]
