"""Interface of the agents, whatever the algorithm, and the choice of the agent by a user's parameters.

Axes: P members of one shape, D parameters, F features, A actions, W columns of a transition, B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from envolve.distributed.files.params import TrainParamsBase
from envolve.distributed.memory.rows import Widths
from envolve.distributed.programs.contrastive import Contrastive
from envolve.distributed.programs.off_policy import OffPolicy


class Agent(Protocol):
    """Agents of P members: ``off_policy.py``, ``contrastive.py``."""

    def weights(self) -> Tensor:
        """All parameters, float32 [P, D], a view."""

    def actor(self) -> Tensor:
        """Parameters of the actors, a view: the policy."""

    def layout(self) -> dict[str, Any]:
        """Shape of the actors' network, as stored by ``distributed/files/policy_file.py``."""

    def parts(self) -> dict[str, Tensor]:
        """Complete state; the tensors themselves."""

    def draws(self, key: Tensor, first: int, count: int) -> tuple[Tensor, ...]:
        """Random numbers of decisions first .. first + count - 1, each [count, P, A]. key: int64 [P]."""

    def explore(self, obs: Tensor, random: bool, draw: tuple[Tensor, ...]) -> Tensor:
        """Actions in [-1, 1], float32 [P, A], from obs [P, 1, F] and one decision's random numbers. random: uniform
        actions."""

    def prepare(self) -> None:
        """Slow preparations that only a learner needs, before its first gradient step."""

    def learn(self, batch: Tensor, number: int) -> None:
        """Gradient step ``number``, from 1, of every member. batch: float32 [P, W, B], the columns that updates
        read."""

    def metrics(self) -> dict[str, float]:
        """Metrics for the log, means over members."""


AGENTS: dict[str, Callable[[TrainParamsBase, Widths, Tensor], Agent]] = {
    "SAC": OffPolicy,
    "TD3": OffPolicy,
    "CRL": Contrastive,
}


def make_agent(params: TrainParamsBase, widths: Widths, keys: Tensor) -> Agent:
    """Fresh agents, one per key. keys: int64 [P]. Raises ParamsError."""
    return AGENTS[params.algorithm](params, widths, keys)


def policy_content(params: TrainParamsBase, widths: Widths, agent: Agent, step: int) -> dict[str, Any]:
    """Content for ``envolve.distributed.files.policy_file.save_policy``. step: gradient steps so far."""
    return {
        "algorithm": params.algorithm, "actor": agent.actor().clone().contiguous(), **agent.layout(),
        "low": torch.tensor(widths.low), "high": torch.tensor(widths.high), "step": step,
    }  # fmt: skip


def state_of(agent: Agent) -> dict[str, Tensor]:
    """Copy of the complete state of an agent."""
    return {name: part.clone() for name, part in agent.parts().items()}


def load_state(agent: Agent, state: Any) -> None:
    """Raises ValueError for the state of agents of another shape."""
    mine = agent.parts()
    if type(state) is not dict or set(state) != set(mine):
        raise ValueError(f"expected the tensors {', '.join(mine)}")
    for name, part in mine.items():
        found = state[name]
        if type(found) is not Tensor or found.shape != part.shape or found.dtype != part.dtype:
            raise ValueError(f"{name}: expected {part.dtype} of shape {list(part.shape)}")
        part.copy_(found)
