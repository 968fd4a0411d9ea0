"""A functional task (``envolve.Task``) as an environment of Gymnasium, one episode at a time.

So whatever takes environments from outside takes a task of the user's own, too: ``envolve evolve my_task.py:MyTask``.
``env_name: my_task.py:MyTask`` in a configuration steps all episodes in one batch instead.
"""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Tuple, Type

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from envolve.envs.task import Task, mark_of
from envolve.envs.worlds.export import WorldEnv
from envolve.envs.worlds.world import RealTask


class TaskEnv(WorldEnv):
    """Options are those of the task. Finite tasks show the one-hot code of their state, as ``Task.observe`` does."""

    task_class: ClassVar[Type[Task]] = Task

    def __init__(self, **options: Any) -> None:
        task = self.task = self.task_class(**options)
        super().__init__(RealTask(task, 1, for_learning=False))
        low, high = (np.array(bound, np.float32) for bound in task.observation_bounds())
        self.observation_space = spaces.Box(low, high, (task.observation_size,), np.float32)
        self.spec = EnvSpec(
            f"{type(self).__name__}-v0",
            entry_point=type(self),
            kwargs=options,
            reward_threshold=mark_of(task.solved_reward),
            max_episode_steps=task.max_steps,
        )

    def step(self, action: Any) -> Tuple[np.ndarray, float, bool, bool, Dict[str, Any]]:
        before = self._state
        observation, reward, terminated, truncated, info = super().step(action)
        if self.task.info_names:
            assert before is not None and self._state is not None
            chosen = torch.as_tensor(np.asarray(action))
            chosen = chosen.long().reshape(1, 1) if self.task.num_actions else chosen.float().reshape(1, 1, -1)
            values = self.task.info(before, chosen, self._state)
            info = dict(zip(self.task.info_names, values.reshape(-1).tolist()))
        return observation, reward, terminated, truncated, info

    def _observation(self) -> np.ndarray:
        assert self._state is not None
        observation: np.ndarray = self.task.observe(self._state).reshape(-1).numpy()
        return observation


def environment_class(found: type) -> Type[gymnasium.Env]:
    """An environment's class as it is; of a task's class one whose environments play it."""
    if issubclass(found, gymnasium.Env):
        return found
    return type(found.__name__, (TaskEnv,), {"task_class": found, "__module__": found.__module__})
