"""Setup shared by both back ends of ``agents/shaped/ppo.py``: fresh agents and the adaptive learning rate."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.hyper import draw
from envolve.agents.common.sections import PPOSection
from envolve.agents.ppo.policy import initial_weights, networks
from envolve.envs.nets.networks import MLPShape
from envolve.envs.task import Task

RATE_MIN, RATE_MAX, RATE_STEP = 1e-5, 1e-2, 1.5
# Least standard deviation after an iteration. The loss has no gradient by a parameter below ``ppo_policy.STD_MIN``:
# with a few large steps exploration would end for good.
STD_FLOOR = 0.05


def spaces(F: int, A: int) -> Task:
    """Task attributes that agents read: widths, and actions in [-1, 1]."""
    return type("Spaces", (Task,), {"observation_size": F, "action_size": A})()


def create(section: PPOSection, F: int, A: int, key: int) -> Tuple[Tuple[MLPShape, MLPShape], np.ndarray]:
    """Actor and critic of one candidate, and its weights float32 [D], a function of these arguments alone."""
    keys = np.array([key], np.int64)
    hyper, task = draw(section, keys), spaces(F, A)
    agents = networks(task, hyper)
    return agents[0], initial_weights(task, agents, hyper, keys)[0]


def adapted(rate: Any, divergence: Any, desired: float) -> Any:
    """Learning rate after an iteration that moved the policy by ``divergence``: float64, tensors or arrays alike.

    Rudin et al. 2022 (https://arxiv.org/abs/2109.11978): down by 1.5 where it moved twice as far as desired, up by 1.5
    where less than half. (There after each update; here once an iteration, from the divergence after the last one.)
    """
    rate, divergence = torch.as_tensor(rate), torch.as_tensor(divergence)
    down, up = divergence > 2 * desired, divergence < desired / 2
    moved: Tensor = torch.where(down, rate / RATE_STEP, torch.where(up, rate * RATE_STEP, rate))
    return torch.where(down | up, moved.clamp(RATE_MIN, RATE_MAX), rate)
