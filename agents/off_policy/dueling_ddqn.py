"""Double DQN with a dueling network (Wang et al. 2016, https://arxiv.org/abs/1511.06581), for a population."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from envolve.agents.common.population import Nets
from envolve.agents.common.sections import DuelingDDQNSection
from envolve.agents.off_policy.ddqn import DDQN
from envolve.envs.nets.networks import MLPShape, forward
from envolve.envs.task import Task


class DuelingDDQN(DDQN):
    """Q = V + A - mean(A): a feature net, and on its output a net for the value and one for the advantages."""

    section_class = DuelingDDQNSection

    @classmethod
    def nets_of(cls, task: Task, section: Any, hidden: int, layers: int) -> Nets:
        features, act = section.feature_dim, section.activation_fn
        return (
            MLPShape(task.observation_size, features, hidden, layers, act),
            MLPShape(features, 1, features, 1, act),
            MLPShape(features, task.num_actions, features, 1, act),
        )

    def q(self, params: Tensor, obs: Tensor, weight: Optional[Tensor] = None) -> Tensor:
        shapes = self.nets
        feature, value, advantage = params.split([shape.size for shape in shapes], dim=1)
        x = forward(shapes[0], feature, obs)  # no activation on the features
        v, a = forward(shapes[1], value, x), forward(shapes[2], advantage, x)
        if self.section.published_dueling_mean:  # type: ignore[attr-defined]
            used = torch.ones_like(v[:, 0], dtype=torch.bool) if weight is None else weight > 0
            share = used / (used.sum(1, keepdim=True).clamp(min=1) * self.task.num_actions)
            return v + a - (a * share[:, None]).sum((1, 2), keepdim=True)
        return v + a - a.mean(1, keepdim=True)
