"""Gymnasium versions of this project's tasks in a physics engine, for ``TrainParams.env_ctor``. Classic tasks and
evolved worlds have ``envs/worlds/export.py`` (``WorldEnv(RealTask(make_task("Pendulum-v0"), 1))``, ``load_world``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from envolve.agents.shaped.training import make_envs
from envolve.core.registry import nearest
from envolve.envs.physics.task import physics_task
from envolve.envs.shaping.candidate import Candidate, load_candidate
from envolve.outer.config.yaml_lines import ConfigError, show

WIDTH, HEIGHT = 480, 352  # of pictures


class TaskEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A task of envs/physics/ as it is, or shaped by a candidate's file. Observation float32 [F], action [A] in +-1,
    the candidate's if it has own ones; the reward is the candidate's or the task's, ``info["score"]`` the true
    score."""

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any] | None = None,
        shaper: str | Path | None = None,
        render_mode: str | None = None,
    ) -> None:
        """config: values of the parameters (docs/shaped_tasks.md), or ranges [low, high] to draw from per episode;
        ``self.config`` may be changed at any time and takes effect at the next reset. shaper: a candidate's file, which
        is executed. Raises ConfigError, SimulatorError."""
        try:
            task = physics_task(name)
        except KeyError as e:
            raise ConfigError([f"TaskEnv: {e.args[0]}"]) from None
        candidate = Candidate("human") if shaper is None else load_candidate(Path(shaper))
        if candidate.failure is not None:
            raise ConfigError([f"TaskEnv: {shaper}: {candidate.failure}"])
        # what the task draws from by itself, as numbers where that is one
        self.config: dict[str, Any] = {
            key: p.low if p.low == p.high else [p.low, p.high] for key, p in task.parameters.items()
        }
        for key in config or {}:
            if key not in self.config:
                near = nearest(key, self.config, cutoff=0.0)
                raise ConfigError([f"TaskEnv: {name} has no parameter {show(key)}; nearest: {near}"])
        self.config.update(config or {})
        self.envs = make_envs(name, [candidate], 1, 0)
        self._check_shaper()
        self.observation_space = spaces.Box(-np.inf, np.inf, (self.envs.observation_sizes[0],), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (self.envs.action_sizes[0],), np.float32)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / self.envs.task.dt)}
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode. Raises ConfigError."""
        super().reset(seed=seed)
        task = self.envs.task
        for key, value in self.config.items():
            low, high = _range(key, value)
            task.ranges[key] = task.parameters[key]._replace(low=low, high=high)
        # a key of its own for every episode, which it then depends on alone
        self.envs.key.fill_(int(self.np_random.integers(2**62)))
        self.envs.steps = 0
        obs = self.envs.begin()
        self._check_shaper()
        return obs[0, 0].numpy().copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Makes one step. Raises ConfigError if the candidate fails."""
        chosen = torch.as_tensor(np.asarray(action, np.float32)).clamp(-1, 1)
        step = self.envs.step(chosen[None, None])
        self._check_shaper()
        info = {"score": float(step.score[0, 0])}
        terminated, truncated = bool(step.terminated[0, 0]), bool(step.truncated[0, 0])
        return step.last_obs[0, 0].numpy().copy(), float(step.reward[0, 0]), terminated, truncated, info

    def render(self) -> Any:
        """Rendered picture, uint8 [HEIGHT, WIDTH, 3]; None without render_mode. Raises SimulatorError."""
        return self.envs.task.sim.render(0, WIDTH, HEIGHT) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self.envs.task.sim.close()

    def _check_shaper(self) -> None:
        for failure in self.envs.failures.values():
            raise ConfigError([f"TaskEnv: {self.envs.candidates[0].name}: {failure}"])


def _range(key: str, value: Any) -> tuple[float, float]:
    ends = list(value) if isinstance(value, (list, tuple)) else [value, value]
    if len(ends) != 2 or any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in ends) or ends[0] > ends[1]:
        raise ConfigError([f"TaskEnv: {key}: found {show(value)}, expected a number or a range [low, high]"])
    return float(ends[0]), float(ends[1])
