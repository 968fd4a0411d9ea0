"""Contrastive RL of ``agents/goal/crl.py`` under a user's parameters. What a row led to is, in a batch, a goal out of
its future: ``distributed/memory/hindsight.py`` draws it.

Random numbers of decisions: decision d uses counter d A + j of stream EXPLORE for action j, as SAC does.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from envolve.agents.goal.crl import CRL
from envolve.agents.goal.crl_losses import diagnostics
from envolve.agents.goal.crl_section import CRLSection
from envolve.core import rng
from envolve.distributed.files.params import CRL_FIELDS, TrainParamsBase
from envolve.distributed.memory.rows import Widths


def section_of(params: TrainParamsBase) -> CRLSection:
    """Equivalent section of ``train_goal.py``. Raises ParamsError."""
    return CRLSection(
        policy_lr=params.actor_lr,
        critic_lr=params.critic_lr,
        alpha_lr=params.alpha_lr,
        discounting=params.gamma,
        batch_size=params.batch_size,
        h_dim=params.units,
        n_hidden=len(params.hidden),
        initial_alpha=math.exp(params.log_alpha_init),
        **{name: getattr(params, name) for name in CRL_FIELDS},
    )


class Contrastive:
    """An ``Agent`` of ``distributed/programs/agent.py``. Axes as there, and S features without the goal, G numbers of a
    goal."""

    def __init__(self, params: TrainParamsBase, widths: Widths, keys: Tensor) -> None:
        """Raises ParamsError."""
        self.widths, self.S = widths, widths.observation_size - widths.goal_size
        # which features are a goal's is asked by ``CRL.sample`` alone, and the batches here are drawn elsewhere
        self.crl = CRL(section_of(params), self.S, widths.action_size, range(widths.goal_size), keys)
        self.batch: tuple[Tensor, ...] | None = None  # the last one

    def weights(self) -> Tensor:
        return self.crl.params

    def actor(self) -> Tensor:
        return self.crl.params[:, : self.crl.actor.size]

    def layout(self) -> dict[str, Any]:
        actor = self.crl.actor
        return {
            "activation": actor.activation,
            "inputs": actor.inputs,
            "outputs": self.crl.A,
            "hidden": actor.hidden,
            "layers": actor.layers,
            "skip": actor.skip,
        }

    def parts(self) -> dict[str, Tensor]:
        return {name: getattr(self.crl, name) for name in CRL.KEPT}

    def draws(self, key: Tensor, first: int, count: int) -> tuple[Tensor, ...]:
        """Draws one random number per decision and action, used either as uniform or as normal."""
        decision = torch.arange(first, first + count)[:, None, None]
        counter = decision * self.crl.A + torch.arange(self.crl.A)
        return rng.uniform(key[:, None], counter), rng.normal(key[:, None], counter)

    def explore(self, obs: Tensor, random: bool, draw: tuple[Tensor, ...]) -> Tensor:
        uniform, noise = draw
        if random:
            return 2 * uniform - 1
        return self.crl.explore(obs[..., : self.S], obs[..., self.S :], noise[:, None])[:, 0]

    def prepare(self) -> None:
        pass

    def learn(self, batch: Tensor, number: int) -> None:
        """Updates the networks with one batch. ``number`` is unused, as CRL counts its own updates."""
        rows = batch.transpose(1, 2)
        state, goal, action = rows[..., : self.S], rows[..., self.widths.led_to], rows[..., self.widths.action]
        self.batch = state, action, goal, goal
        self.crl.learn_batch(self.batch)

    @torch.no_grad()
    def metrics(self) -> dict[str, float]:
        """Metrics of the last batch, after its update; after a restart the temperature alone."""
        crl = self.crl
        found = {"alpha": crl.log_alpha.exp()}
        if self.batch is not None:
            critic, _, _, contrast, entropy = crl.losses(crl.params, crl.log_alpha, self.batch, crl.noise())
            found.update(critic_loss=critic, entropy=entropy, **diagnostics(contrast))
        return {name: float(values.mean()) for name, values in found.items()}
