"""Episodes of a goal task in the engine that it needs."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from envolve.envs.goal.episodes import Episodes
from envolve.envs.goal.simulated import SimulatedEpisodes, SimulatedTask
from envolve.envs.goal.task import GoalTask


def make_episodes(
    task: GoalTask, keys: Tensor, N: int, engine: str = "mujoco", threads: int = 1, **options: Any
) -> Episodes:
    """Makes episodes. engine, threads: of tasks that need a physics engine (``make_simulator``); options: those of
    ``Episodes``. Raises ValueError, SimulatorError."""
    if isinstance(task, SimulatedTask):
        return SimulatedEpisodes(task, keys, N, engine, threads, **options)
    return Episodes(task, keys, N, **options)
