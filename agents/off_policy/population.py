"""P off-policy agents of one shape, for loops that draw the batches themselves: shaped tasks, goals, distributed
programs. ``agents/off_policy/training.py`` has the loop for classic tasks, whose agents may differ in size.

This object alone decides whether PyTorch or a compiled kernel makes the gradient steps.

Axes: P agents, N environments of each, F features, A actions, B minibatch, W = 2 F + A + 2 rows of a batch, D
parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, Tuple, Type

import torch
from torch import Tensor

from envolve.agents.common.denormals import without_denormals
from envolve.agents.common.hyper import Hyper
from envolve.agents.common.population import initial_weights, nets_of
from envolve.agents.off_policy.algorithm import Algorithm
from envolve.core import rng


@dataclass(frozen=True)
class Widths:
    """Task attributes that an ``Algorithm`` reads."""

    observation_size: int
    action_size: int
    num_actions: int = 0  # discrete ones
    max_action: float = 1.0


class AgentPopulation:
    """Acts, learns, is stored and loaded."""

    def __init__(self, kind: Type[Algorithm], widths: Any, hyper: Hyper, keys: Tensor) -> None:
        """widths: ``Widths`` or anything with its attributes; hyper: of equally large agents; keys: int64 [P], on the
        device to use."""
        seeds = keys.cpu().numpy()
        nets = nets_of(kind, widths, hyper)
        params = torch.as_tensor(initial_weights(nets, seeds), device=keys.device)
        section: Any = hyper.section
        width = torch.full_like(keys, section.hidden_size)
        self.algorithm = kind(widths, hyper, nets[0], params, width)
        P, B = len(keys), section.batch_size
        self.key = rng.fold(keys, rng.UPDATE)
        self.weight = torch.full((P, B), 1 / B, device=keys.device)
        self.learns = torch.ones(P, dtype=torch.bool, device=keys.device)
        self.updates = torch.zeros_like(keys)  # gradient steps so far
        self.compiled = False
        self._update: Any = self.algorithm.update

    def compile(self) -> bool:
        """Makes gradient steps by a compiled kernel from now on, where there is one. Returns whether there is."""
        from envolve.agents.kernels.off_policy.update import update_of, why_not  # imports numba

        self.compiled = why_not(self.algorithm) is None
        self._update = update_of(self.algorithm)
        return self.compiled

    @property
    def params(self) -> Tensor:
        """All parameters, float32 [P, D]."""
        params: Tensor = self.algorithm.rows.params
        return params

    def draws(self, key: Tensor, first: int, count: int) -> Tuple[Tensor, ...]:
        """Random numbers of decisions first .. first + count - 1; see ``Algorithm.draws``."""
        return self.algorithm.draws(key, first, count)

    def side_by_side(self, key: Tensor, first: int, count: int) -> Tuple[Tensor, ...]:
        """Random numbers of one decision in ``count`` environments, each [P, count A]: environment n takes those of
        decision first + n."""
        return tuple(part.transpose(0, 1).flatten(1) for part in self.draws(key, first, count))

    def explore(self, obs: Tensor, episode: Tensor, draw: Tuple[Tensor, ...]) -> Tensor:
        """Exploring actions, [P, N, A] or int64 [P, N]. obs: [P, N, F]; episode: int64 [P]; draw: see
        ``side_by_side``."""
        return self.algorithm.explore(obs, episode, draw)[0]

    def greedy(self, obs: Tensor) -> Tensor:
        """Greedy actions for obs [P, N, F]."""
        return self.algorithm.greedy(obs)

    @without_denormals()
    def learn(self, batch: Tensor, actor: bool) -> None:
        """One gradient step of every agent, in place; a CUDA graph may replay it. batch: [P, W, B], see
        ``Algorithm.update``; actor: whether it is the actor's turn."""
        self.updates += 1
        self._update(batch, self.weight, self.learns, self.updates, self.key, actor)

    def actors_turn(self, number: int) -> bool:
        """Whether gradient step ``number``, from 1, updates the actor."""
        return number % self.algorithm.policy_delay == 0

    def keep(self, index: Tensor) -> None:
        """Keeps only these agents."""
        self.algorithm.keep(index)
        self.key, self.weight, self.learns = self.key[index], self.weight[index], self.learns[index]
        self.updates = self.updates[index]
        self._update = self.algorithm.update
        if self.compiled:
            self.compile()

    def finite(self) -> Tensor:
        """Whether all weights are finite, bool [P]."""
        return torch.isfinite(self.params).all(1)

    # ------------------------------------------------------------------------------------------------ keeping a run

    def tensors(self) -> Dict[str, Tensor]:
        """Everything that an update changes, except ``updates``: the tensors themselves."""
        rows = self.algorithm.rows
        return {field.name: getattr(rows, field.name) for field in fields(rows)}

    def state_dict(self) -> Dict[str, Tensor]:
        """Copies of everything that learning changes."""
        return {**{name: part.clone() for name, part in self.tensors().items()}, "updates": self.updates.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, part in self.tensors().items():
            part.copy_(state[name])
        self.updates.copy_(state["updates"])
