"""Episodes of a task in whatever engine it needs."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from envs.goal.episodes import Episodes
from envs.goal.task import GoalTask


def make_episodes(task: GoalTask, keys: Tensor, N: int, **options: Any) -> Episodes:
    """options: those of ``Episodes``."""
    return Episodes(task, keys, N, **options)
