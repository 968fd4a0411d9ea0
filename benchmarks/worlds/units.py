"""Tests, on the task, of agents that learned in a bandit in units of its contexts' spread (envs/worlds/units.py).

Observations are clipped at 10 deviations, as VecNormalize does. Axes: N observations, F features, D numbers of a world.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.rollout import test_episodes
from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.units import Units
from envolve.envs.worlds.world import world_nets
from envolve.worlds.units import CLIP


def asking(task: Task, section: EnvSection, flat: Tensor, share: float) -> Tensor:
    """The bandit that pays for ``share`` times the action what this one pays for the action, float32 [D]: no best
    action is at a bound. reward_net's first layer: W / share on the rows of the action."""
    init, reward = (shape for _, shape in world_nets("se", task, section))
    out = flat.clone()
    offset, K, M = reward.layer_offsets()[0]
    begin = init.size + offset
    out[begin : begin + task.action_size * M] /= share
    return out


def shown(observation: Tensor, units: Units) -> Tensor:
    """[..., F] -> the same in these units."""
    return ((observation - units.mean) / units.deviation).clamp(-CLIP, CLIP)


def test_returns(
    task: Task, policies: list[Callable[[Tensor], Tensor]], units: Units, keys: np.ndarray, tests: int
) -> list[list[float]]:
    """Greedy returns on the task, in the episodes of ``agents.train.train``. policies: from observations in ``units``,
    [1, N, F], to actions; keys: int64 [P], the agents' random seeds."""

    def act(observation: Tensor, step: Tensor) -> Tensor:
        seen = shown(observation, units)
        return torch.cat([policy(seen[i : i + 1]) for i, policy in enumerate(policies)])

    key = rng.fold(torch.from_numpy(keys), rng.FINAL_TEST)
    returns, _ = test_episodes(task, act, key, torch.zeros_like(key), tests, 1)
    return returns.tolist()
