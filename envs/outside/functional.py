"""A functional task (``envolve.Task``) as an environment of Gymnasium, one episode at a time.

So whatever takes environments from outside takes a task of the user's own, too: ``envolve evolve my_task.py:MyTask``.
``env_name: my_task.py:MyTask`` in a configuration steps all episodes in one batch instead.
"""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Optional, Tuple, Type

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from envolve.envs.task import Task, mark_of
from envolve.envs.worlds.export import action_space
from envolve.envs.worlds.world import RealTask


class TaskEnv(gymnasium.Env):
    """Options are those of the task. Finite tasks show the one-hot code of their state, as ``Task.observe`` does."""

    metadata = {"render_modes": []}
    task_class: ClassVar[Type[Task]] = Task

    def __init__(self, **options: Any) -> None:
        task = self.task = self.task_class(**options)
        low, high = (np.array(bound, np.float32) for bound in task.observation_bounds())
        self.observation_space = spaces.Box(low, high, (task.observation_size,), np.float32)
        self.action_space = action_space(RealTask(task, 1))
        self.spec = EnvSpec(
            f"{type(self).__name__}-v0",
            entry_point=type(self),
            kwargs=options,
            reward_threshold=mark_of(task.solved_reward),
            max_episode_steps=task.max_steps,
        )
        self._state: Optional[torch.Tensor] = None
        self._length = 0

    def reset(
        self, *, seed: Optional[int] = None, options: Optional[Dict[str, Any]] = None
    ) -> Tuple[np.ndarray, Dict[str, Any]]:
        super().reset(seed=seed)
        u = self.np_random.random((1, 1, self.task.reset_uniforms))
        self._state, self._length = self.task.reset(torch.from_numpy(u)), 0
        return self._observation(), {}

    def step(self, action: Any) -> Tuple[np.ndarray, float, bool, bool, Dict[str, Any]]:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        chosen = torch.as_tensor(np.asarray(action))
        chosen = chosen.long().reshape(1, 1) if self.task.num_actions else chosen.float().reshape(1, 1, -1)
        before = self._state
        self._state, reward, terminated = self.task.step(before, chosen)
        self._length += 1
        info: Dict[str, Any] = {}
        if self.task.info_names:
            values = self.task.info(before, chosen, self._state)
            info = dict(zip(self.task.info_names, values.reshape(-1).tolist()))
        noise = self.task.reward_noise * float(self.np_random.standard_normal()) if self.task.reward_noise else 0.0
        cut = self._length >= self.task.max_steps
        return self._observation(), float(reward) + noise, bool(terminated), cut and not bool(terminated), info

    def _observation(self) -> np.ndarray:
        assert self._state is not None
        observation: np.ndarray = self.task.observe(self._state).reshape(-1).numpy()
        return observation


def environment_class(found: type) -> Type[gymnasium.Env]:
    """An environment's class as it is; of a task's class one whose environments play it."""
    if issubclass(found, gymnasium.Env):
        return found
    return type(found.__name__, (TaskEnv,), {"task_class": found, "__module__": found.__module__})
