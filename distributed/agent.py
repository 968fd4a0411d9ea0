"""The learners of ``agents/`` under a user's parameters: P members of one shape in one flat buffer.

SAC's and TD3's rules are those of ``agents/sac.py`` and ``td3.py``; here actor, critics and temperature have learning
rates of their own, and targets move at every ``target_update_period``-th gradient step.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from agents.algorithm import Algorithm
from agents.hyper import draw
from agents.population import initial_weights, nets_of
from agents.sac import SAC
from agents.sections import SACSection, TD3Section
from agents.td3 import TD3
from distributed.params import ParamsError, TrainParamsBase
from distributed.rows import Widths

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
    """The section of ``agents/sections.py`` that says the same. Raises ParamsError."""
    if len(set(params.hidden)) != 1:
        raise ParamsError(f"hidden: found {params.hidden}, expected layers of one width, such as (256, 256)")
    shared: dict[str, Any] = {
        "init_episodes": LEARNED_EPISODE, "batch_size": params.batch_size, "gamma": params.gamma,
        "lr": params.critic_lr, "tau": params.tau, "hidden_size": params.hidden[0], "hidden_layer": len(params.hidden),
    }  # fmt: skip
    if params.algorithm == "SAC":
        return SACSection(alpha=math.exp(params.log_alpha_init), **shared)
    if params.algorithm == "TD3":
        return TD3Section(policy_delay=2, **shared)  # as published
    raise ParamsError(f"algorithm: found {params.algorithm!r}, expected SAC or TD3")


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


def actor_of(algorithm: Algorithm) -> Tensor:
    """The actors' weights, float32 [P, D], a view: the first net of the flat buffer."""
    return algorithm.rows.params[:, : algorithm.nets[0].size]


def policy_content(params: TrainParamsBase, widths: Widths, algorithm: Algorithm, step: int) -> dict[str, Any]:
    """What ``distributed.policy_file.save_policy`` keeps. step: gradient steps so far."""
    return {
        "algorithm": params.algorithm, "actor": actor_of(algorithm).clone().contiguous(), "activation": "relu",
        "inputs": widths.observation_size, "outputs": widths.action_size, "hidden": params.hidden[0],
        "layers": len(params.hidden), "low": torch.tensor(widths.low), "high": torch.tensor(widths.high), "step": step,
    }  # fmt: skip


def rows_state(algorithm: Algorithm) -> dict[str, Tensor]:
    """All that an agent is."""
    return {f.name: getattr(algorithm.rows, f.name).clone() for f in fields(algorithm.rows)}


def load_rows(algorithm: Algorithm, state: Any) -> None:
    """Raises ValueError for the state of agents of another shape."""
    mine = rows_state(algorithm)
    if type(state) is not dict or set(state) != set(mine):
        raise ValueError(f"expected the tensors {', '.join(mine)}")
    for name, value in mine.items():
        found = state[name]
        if type(found) is not Tensor or found.shape != value.shape or found.dtype != value.dtype:
            raise ValueError(f"{name}: expected {value.dtype} of shape {list(value.shape)}")
        getattr(algorithm.rows, name).copy_(found)
