"""Fresh agents of both back ends of ``agents/shaped/ppo.py``."""

from __future__ import annotations

from typing import Tuple

import numpy as np

from envolve.agents.common.hyper import draw
from envolve.agents.common.sections import PPOSection
from envolve.agents.ppo.policy import initial_weights, networks
from envolve.envs.nets.networks import MLPShape
from envolve.envs.task import Task

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
