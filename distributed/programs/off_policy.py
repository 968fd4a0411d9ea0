"""SAC and TD3 of ``agents/`` under a user's parameters: P members of one shape in one flat buffer.

Their rules are those of ``agents/off_policy/sac.py`` and ``td3.py``; here actor, critics and temperature have learning
rates of their own, and targets move at every ``target_update_period``-th gradient step.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.population import initial_weights, nets_of
from envolve.agents.common.sections import SACSection, TD3Section
from envolve.agents.kernels.off_policy.update import Update, update_of
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.agents.off_policy.sac import SAC
from envolve.agents.off_policy.td3 import TD3
from envolve.core import rng
from envolve.distributed.files.params import TrainParamsBase
from envolve.distributed.memory.rows import Widths

RANDOM_EPISODE, LEARNED_EPISODE = 0, 1  # what ``Algorithm.explore`` takes for uniform and for learned actions


class OwnRatesSAC(SAC):
    """SAC; ``lr`` is the critics' rate."""

    actor_share = alpha_share = 1.0  # of the critics' rate

    def rates(self, learns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lr = self.rows.lr * learns
        return lr, lr * self.actor_share, lr * self.alpha_share


class OwnRatesTD3(TD3):
    """TD3; ``lr`` is the critics' rate."""

    actor_share = 1.0

    def rates(self, learns: Tensor) -> tuple[Tensor, Tensor]:
        lr = self.rows.lr * learns
        return lr, lr * self.actor_share


def section_of(params: TrainParamsBase) -> Any:
    """Equivalent section of ``agents/common/sections.py``. Raises ParamsError."""
    shared: dict[str, Any] = {
        "init_episodes": LEARNED_EPISODE, "batch_size": params.batch_size, "gamma": params.gamma,
        "lr": params.critic_lr, "tau": params.tau, "hidden_size": params.units, "hidden_layer": len(params.hidden),
    }  # fmt: skip
    if params.algorithm == "SAC":
        return SACSection(alpha=math.exp(params.log_alpha_init), **shared)
    return TD3Section(policy_delay=2, **shared)  # as published


def make_algorithm(params: TrainParamsBase, widths: Widths, keys: Tensor) -> Algorithm:
    """Fresh agents, one per key. keys: int64 [P]. Raises ParamsError."""
    section, task = section_of(params), widths
    seeds = keys.numpy()
    hyper = draw(section, seeds)
    kind = OwnRatesSAC if params.algorithm == "SAC" else OwnRatesTD3
    nets = nets_of(kind, task, hyper)  # type: ignore[arg-type]  # of a task it reads what Widths has
    weights = torch.as_tensor(initial_weights(nets, seeds))
    width = torch.full_like(keys, section.hidden_size)
    algorithm = kind(task, hyper, nets[0], weights, width)  # type: ignore[arg-type]
    algorithm.actor_share = params.actor_lr / params.critic_lr
    if isinstance(algorithm, OwnRatesSAC):
        algorithm.alpha_share = params.alpha_lr / params.critic_lr
    return algorithm


class OffPolicy:
    """An ``Agent`` of ``distributed/programs/agent.py``."""

    def __init__(self, params: TrainParamsBase, widths: Widths, keys: Tensor) -> None:
        """Raises ParamsError."""
        self.params, self.algorithm = params, make_algorithm(params, widths, keys)
        self.update: Update = self.algorithm.update
        self.update_key = rng.fold(keys, rng.UPDATE)
        P, B = len(keys), params.batch_size
        self.weight = torch.full((P, B), 1 / B)
        self.learns = torch.ones(P, dtype=torch.bool)
        self.episodes = {True: torch.full((P,), RANDOM_EPISODE), False: torch.full((P,), LEARNED_EPISODE)}

    def weights(self) -> Tensor:
        params: Tensor = self.algorithm.rows.params
        return params

    def actor(self) -> Tensor:
        return self.weights()[:, : self.algorithm.nets[0].size]  # the first net of the flat buffer

    def layout(self) -> dict[str, Any]:
        task, p = self.algorithm.task, self.params
        return {"activation": "relu", "inputs": task.observation_size, "outputs": task.action_size, "hidden": p.units,
                "layers": len(p.hidden)}  # fmt: skip

    def parts(self) -> dict[str, Tensor]:
        rows = self.algorithm.rows
        return {f.name: getattr(rows, f.name) for f in fields(rows)}

    def draws(self, key: Tensor, first: int, count: int) -> tuple[Tensor, ...]:
        return self.algorithm.draws(key, first, count)

    def explore(self, obs: Tensor, random: bool, draw: tuple[Tensor, ...]) -> Tensor:
        return self.algorithm.explore(obs, self.episodes[random], draw)[1]

    def prepare(self) -> None:
        self.update = update_of(self.algorithm)  # compiled

    def learn(self, batch: Tensor, number: int) -> None:
        due = number % self.params.target_update_period == 0
        self.algorithm.rows.tau.fill_(self.params.tau if due else 0.0)
        numbers, actor = torch.full_like(self.update_key, number), number % self.algorithm.policy_delay == 0
        self.update(batch, self.weight, self.learns, numbers, self.update_key, actor)

    def metrics(self) -> dict[str, float]:
        rows: Any = self.algorithm.rows
        return {"alpha": float(rows.log_alpha.exp().mean())} if isinstance(self.algorithm, SAC) else {}
