"""What the callers of compiled loops share: the settings of a member, and members among threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Tuple, Type

import numpy as np

from envolve.agents.common.compiling import STEPS, kernels_of
from envolve.agents.common.denormals import without_denormals
from envolve.agents.common.result import OK, TrainResult
from envolve.agents.kernels.common.tasks import TASK_CODES
from envolve.envs.task import Task


def python_steps(task: Task, apart: bool = False) -> bool:
    """Whether Python has to take the steps of a training on ``task`` or in its worlds, by the kernels of
    ``stepwise.py``. apart: as of ``kernels_of``; the PyTorch path makes the final test then (``test_trained``)."""
    return kernels_of("", task.name, apart) == STEPS


def without_tests(task: Task) -> Dict[str, int]:
    """Settings of a member that is tested apart from its training."""
    return {} if task.name in TASK_CODES else {"test_episodes": 0}


def add_tests(result: TrainResult, task: Task, tests: Callable[[np.ndarray], Tuple[Any, Any]]) -> None:
    """Tests members that were trained without a twin of their task. tests: members int64 [p] -> their returns float64
    [p, T], and their steps on the task int64 [p]."""
    fine = np.flatnonzero(result.status == OK)
    if task.name not in TASK_CODES and len(fine):
        returns, steps = tests(fine)
        result.test_return[fine] = returns
        result.real_steps[fine] += steps


def settings(cls: Type[Any], task: Task, section: Any, **own: Any) -> Any:
    """A loop's settings: the task's limits, what ``own`` says, and all else from a member's section."""
    limits = {"max_steps": task.max_steps, "test_steps": task.test_steps, "solved_reward": task.solved_reward}
    own = {**limits, **own}
    return cls(**{name: own[name] if name in own else getattr(section, name) for name in cls._fields})


def train_each(one: Callable[[int, np.ndarray], None], result: TrainResult, threads: int) -> None:
    """Calls one(i, counts) for every member, which fills counts, int64 [5], with train steps, updates, episodes, real
    steps and status; then those of ``result``. The loops release the GIL, and members take unequal time."""
    members = len(result.status)
    counts = np.zeros((members, 5), np.int64)
    one = without_denormals()(one)
    if threads > 1 and members > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(one, range(members), counts))
    else:
        for i in range(members):
            one(i, counts[i])
    result.train_steps, result.updates, result.episodes, result.real_steps = (counts[:, j].copy() for j in range(4))
    result.status = counts[:, 4].astype(np.int8)
