"""A contextual bandit in units of its own contexts' spread, so that compiled learners see what VecNormalize shows.

Stable-Baselines3's VecNormalize shows an agent (o - mean) / deviation, both of the observations so far. In a bandit
these do not depend on the agent, so they are constants, and a world in these units is the same with other weights:

    init_net's last layer      W / deviation, (b - mean) / deviation
    reward_net's first layer   deviation W on the rows of the observation, b + mean W

What learns there is tested on the task with the same constants. Axes: N contexts, F features, D numbers of a world.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.rollout import test_episodes
from envolve.core import rng
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.contextual_bandit import ContextualBandit
from envolve.envs.worlds.world import world_nets
from envolve.worlds.units import CLIP, CONTEXTS, EPSILON


@dataclass(frozen=True)
class Units:
    """float32 [F] each."""

    mean: Tensor
    deviation: Tensor

    def of(self, observation: Tensor) -> Tensor:
        """[..., F] -> the same in these units."""
        return ((observation - self.mean) / self.deviation).clamp(-CLIP, CLIP)


def units_of(task: Task, section: EnvSection, flat: Tensor, seed: int = 0) -> Units:
    """Mean and deviation of a bandit's contexts. flat: float32 [D]. Raises ValueError: its contexts are stored, or are
    codes."""
    if section.stored_contexts or task.codes:
        raise ValueError("found stored contexts or codes, expected contexts that init_net draws as they are")
    world = ContextualBandit(task, section, flat[None])
    u = torch.from_numpy(np.random.default_rng(seed).random((1, CONTEXTS, world.reset_uniforms)))
    contexts = world.reset(u)[0].double()
    deviation = (contexts.var(0, correction=0) + EPSILON).sqrt()
    return Units(contexts.mean(0).float(), deviation.float())


def in_units(task: Task, section: EnvSection, flat: Tensor, units: Units) -> Tensor:
    """The bandit with weights for observations in these units, float32 [D]."""
    init, reward = (shape for _, shape in world_nets("se", task, section))
    out = flat.clone()
    offset, K, M = init.layer_offsets()[-1]
    out[offset : offset + K * M] = (flat[offset : offset + K * M].view(K, M) / units.deviation).flatten()
    bias = slice(offset + K * M, offset + K * M + M)
    out[bias] = (flat[bias] - units.mean) / units.deviation
    offset, K, M = reward.layer_offsets()[0]
    begin = init.size + offset
    weights = flat[begin : begin + K * M].view(K, M)
    of_observation = weights[-len(units.mean) :]  # the action's rows come first
    scaled = torch.cat((weights[: -len(units.mean)], of_observation * units.deviation[:, None]))
    out[begin : begin + K * M] = scaled.flatten()
    bias = slice(begin + K * M, begin + K * M + M)
    out[bias] = flat[bias] + units.mean @ of_observation
    return out


def asking(task: Task, section: EnvSection, flat: Tensor, share: float) -> Tensor:
    """The bandit that pays for ``share`` times the action what this one pays for the action, float32 [D]: no best
    action is at a bound. reward_net's first layer: W / share on the rows of the action."""
    init, reward = (shape for _, shape in world_nets("se", task, section))
    out = flat.clone()
    offset, K, M = reward.layer_offsets()[0]
    begin = init.size + offset
    out[begin : begin + task.action_size * M] /= share
    return out


def test_returns(
    task: Task, policies: list[Callable[[Tensor], Tensor]], units: Units, keys: np.ndarray, tests: int
) -> list[list[float]]:
    """Greedy returns on the task, in the episodes of ``agents.train.train``. policies: from observations in ``units``,
    [1, N, F], to actions; keys: int64 [P], the agents' random seeds."""

    def act(observation: Tensor, step: Tensor) -> Tensor:
        seen = units.of(observation)
        return torch.cat([policy(seen[i : i + 1]) for i, policy in enumerate(policies)])

    key = rng.fold(torch.from_numpy(keys), rng.FINAL_TEST)
    returns, _ = test_episodes(task, act, key, torch.zeros_like(key), tests, 1)
    return returns.tolist()
