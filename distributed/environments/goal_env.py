"""Gymnasium versions of this project's goal tasks (docs/goals.md), for ``TrainParams.env_ctor`` with CRL."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from envolve.envs.goal.engines import make_episodes
from envolve.envs.goal.picture import Scenery
from envolve.envs.goal.simulated import SimulatedEpisodes
from envolve.envs.goal.task import make_goal_task

WIDTH, HEIGHT = 480, 352  # of pictures
GOALS = ("achieved_goal", "desired_goal")
Observation = dict[str, np.ndarray]


class GoalEnv(gymnasium.Env[Observation, np.ndarray]):
    """A task of envs/goal/. Observation: Gymnasium-Robotics' three, float32; action [A] in +-1. The reward is 1 near
    the goal and else 0, dense: minus the distance, m; ``info["success"]``: near the goal."""

    def __init__(
        self, name: str, horizon: int = 0, dense: bool = False, action_repeat: int = 1, render_mode: str | None = None
    ) -> None:
        """horizon: decisions of an episode, 0: the task's own. Raises ValueError, SimulatorError."""
        self.task, self.dense, self.render_mode = make_goal_task(name), dense, render_mode
        self.episodes = make_episodes(
            self.task, torch.zeros(1, dtype=torch.int64), 1, episode_length=horizon, action_repeat=action_repeat
        )
        self.scenery: Scenery | None = None
        sizes = {"observation": self.task.state_size, **dict.fromkeys(GOALS, self.task.goal_size)}
        boxes: dict[str, spaces.Space[Any]] = {
            part: spaces.Box(-np.inf, np.inf, (size,), np.float32) for part, size in sizes.items()
        }
        self.observation_space = spaces.Dict(boxes)  # type: ignore[assignment]
        self.action_space = spaces.Box(-1.0, 1.0, (self.task.action_size,), np.float32)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / (self.task.dt * action_repeat))}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        # a key of its own for every episode, which it then depends on alone
        self.episodes.begin_with(torch.tensor([int(self.np_random.integers(2**62))]))
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        outcome = self.episodes.advance(torch.as_tensor(np.asarray(action, np.float32))[None, None])
        terminated = bool(outcome.terminated)
        reward = float(self.task.reward(outcome.features, self.episodes.goal, self.dense))
        info = {"success": bool(outcome.success)}
        return self._observation(), reward, terminated, bool(outcome.over) and not terminated, info

    def render(self) -> Any:
        """Rendered picture, uint8 [HEIGHT, WIDTH, 3]; None without render_mode. Raises SimulatorError."""
        if self.render_mode != "rgb_array":
            return None
        if self.scenery is None:
            self.scenery = Scenery(self.episodes)
        return self.scenery.picture(WIDTH, HEIGHT)

    def close(self) -> None:
        if self.scenery is not None:
            self.scenery.close()
        if isinstance(self.episodes, SimulatedEpisodes):
            self.episodes.sim.close()

    def _observation(self) -> Observation:
        features, goal = self.episodes.features[0, 0], self.episodes.goal[0, 0]
        parts = {"observation": features, "achieved_goal": self.task.achieved(features), "desired_goal": goal}
        return {part: value.numpy().copy() for part, value in parts.items()}
