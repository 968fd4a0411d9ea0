"""SAC and TD3 of ``agents/`` under a user's parameters: P members of one shape in one flat buffer.

Their rules are those of ``agents/off_policy/sac.py`` and ``td3.py``; here actor, critics and temperature have learning
rates of their own, and targets move at every ``target_update_period``-th gradient step.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.sections import SACSection, TD3Section
from envolve.agents.off_policy.population import AgentPopulation
from envolve.agents.off_policy.sac import SAC
from envolve.agents.off_policy.td3 import TD3
from envolve.distributed.files.params import TrainParamsBase
from envolve.distributed.memory.rows import Widths

RANDOM_EPISODE, LEARNED_EPISODE = 0, 1  # what ``Algorithm.explore`` takes for uniform and for learned actions


# Their shares are set on each object: a class with attributes of its own counts as another algorithm, which has no
# compiled update (``agents/kernels/off_policy/update.py``).


class OwnRatesSAC(SAC):
    """SAC; ``lr`` is the critics' rate."""

    actor_share: float  # of the critics' rate
    alpha_share: float

    def rates(self, learns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        lr = self.rows.lr * learns
        return lr, lr * self.actor_share, lr * self.alpha_share


class OwnRatesTD3(TD3):
    """TD3; ``lr`` is the critics' rate."""

    actor_share: float

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


def make_population(params: TrainParamsBase, widths: Widths, keys: Tensor) -> AgentPopulation:
    """Fresh agents, one per key. keys: int64 [P]. Raises ParamsError."""
    kind = OwnRatesSAC if params.algorithm == "SAC" else OwnRatesTD3
    agents = AgentPopulation(kind, widths, draw(section_of(params), keys.numpy()), keys)
    algorithm: Any = agents.algorithm
    algorithm.actor_share = params.actor_lr / params.critic_lr
    if params.algorithm == "SAC":
        algorithm.alpha_share = params.alpha_lr / params.critic_lr
    return agents


class OffPolicy:
    """An ``Agent`` of ``distributed/programs/agent.py``."""

    def __init__(self, params: TrainParamsBase, widths: Widths, keys: Tensor) -> None:
        """Raises ParamsError."""
        self.params, self.agents = params, make_population(params, widths, keys)
        self.algorithm, P = self.agents.algorithm, len(keys)
        self.episodes = {True: torch.full((P,), RANDOM_EPISODE), False: torch.full((P,), LEARNED_EPISODE)}

    def weights(self) -> Tensor:
        return self.agents.params

    def actor(self) -> Tensor:
        return self.weights()[:, : self.algorithm.nets[0].size]  # the first net of the flat buffer

    def layout(self) -> dict[str, Any]:
        task, p = self.algorithm.task, self.params
        return {
            "activation": "relu",
            "inputs": task.observation_size,
            "outputs": task.action_size,
            "hidden": p.units,
            "layers": len(p.hidden),
        }

    def parts(self) -> dict[str, Tensor]:
        return self.agents.tensors()

    def draws(self, key: Tensor, first: int, count: int) -> tuple[Tensor, ...]:
        return self.agents.draws(key, first, count)

    def explore(self, obs: Tensor, random: bool, draw: tuple[Tensor, ...]) -> Tensor:
        return self.algorithm.explore(obs, self.episodes[random], draw)[1]

    def prepare(self) -> None:
        self.agents.compile()

    def learn(self, batch: Tensor, number: int) -> None:
        due = number % self.params.target_update_period == 0
        self.algorithm.rows.tau.fill_(self.params.tau if due else 0.0)
        self.agents.updates.fill_(number - 1)  # the learner counts: it may have begun from a checkpoint
        self.agents.learn(batch, self.agents.actors_turn(number))

    def metrics(self) -> dict[str, float]:
        rows: Any = self.algorithm.rows
        return {"alpha": float(rows.log_alpha.exp().mean())} if isinstance(self.algorithm, SAC) else {}
