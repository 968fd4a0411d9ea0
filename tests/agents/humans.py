"""Training with a task's own shapers, for the tests that agents learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from envolve.agents.shaped.training import ShapedResult, make_envs, make_learner, train_shaped
from envolve.envs.shaping.candidate import Candidate


def train_humans(
    learner: str, section: Any, task: str, agents: int, num_envs: int, iterations: int, key: Any = 0, threads: int = 1
) -> ShapedResult:
    """``agents`` agents with the keys 0, 1, ..., in ``num_envs`` environments each; key: of the environments."""
    envs = make_envs(task, [Candidate(f"human {i}") for i in range(agents)], num_envs, key, threads=threads)
    return train_shaped(envs, make_learner(learner, envs, section, np.arange(agents), "auto", threads), iterations)
