"""A contextual bandit whose states are shown in other units: the same one with other weights.

Where a state x is shown as m + s x, the units go into the outer layers of the networks:

    draw(z) = m + s net(z):              W <- W s,        b <- b s + m
    reward(a, x) = net(a, (x - m) / s):  W_x <- W_x / s,  b <- b - sum_x W_x m
    stored contexts:                     x <- m + s x

VecNormalize (https://stable-baselines3.readthedocs.io/en/master/guide/vec_envs.html#vecnormalize) shows agents
(x - mean) / deviation, both of the states so far. In a bandit these do not depend on the agent, so they are constants.

Axes: F features, D numbers of a world. Python 3.8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.contextual_bandit import ContextualBandit
from envolve.envs.worlds.world import world_nets

CONTEXTS, EPSILON = 10_000, 1e-8  # as of worlds/units.py, which does without torch


@dataclass(frozen=True)
class Units:
    """float32 [F] each."""

    mean: Tensor
    deviation: Tensor


def units_of(task: Task, section: EnvSection, flat: Tensor) -> Units:
    """Mean and deviation of a bandit's contexts. flat: float32 [D]. Raises ValueError: its contexts are stored, or are
    codes."""
    if section.stored_contexts or task.codes:
        raise ValueError("found stored contexts or codes, expected contexts that init_net draws as they are")
    world = ContextualBandit(task, section, flat[None])
    u = torch.from_numpy(np.random.default_rng(0).random((1, CONTEXTS, world.reset_uniforms)))
    contexts = world.reset(u)[0].double()
    deviation = (contexts.var(0, correction=0) + EPSILON).sqrt()
    return Units(contexts.mean(0).float(), deviation.float())


def in_units(task: Task, section: EnvSection, flat: Tensor, units: Units) -> Tensor:
    """The bandit with weights for observations in these units, float32 [D]."""
    return observed(task, section, flat, -units.mean / units.deviation, 1 / units.deviation)


def observed(task: Task, section: EnvSection, flat: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """The same bandit where x is observed as mean + scale x, float32 [D]. mean, scale: float32 [F]."""
    init, reward = (shape for _, shape in world_nets("se", task, section))
    flat = flat.clone()
    drawing, paying = flat[: init.size], flat[init.size :]
    offset, k, m = init.layer_offsets()[-1]
    weights, bias = drawing[offset : offset + k * m].view(k, m), drawing[offset + k * m : offset + k * m + m]
    weights *= scale  # W <- W s
    if section.stored_contexts:
        weights += mean
    else:
        bias.mul_(scale).add_(mean)  # b <- b s + m
    offset, k, m = reward.layer_offsets()[0]
    weights, bias = paying[offset : offset + k * m].view(k, m), paying[offset + k * m : offset + k * m + m]
    of_state = weights[k - len(mean) :]  # behind the action's inputs
    of_state /= scale[:, None]  # W_x <- W_x / s
    bias -= (of_state * mean[:, None]).sum(0)  # b <- b - sum_x W_x m, with the new W_x
    return flat
