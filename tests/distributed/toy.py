"""A small environment that tells in its observations which step it is in, and runs that use it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envolve.distributed.engine.hub import Hub
from envolve.distributed.files.params import TrainParamsBase
from envolve.distributed.files.run_folder import RunSettings
from envolve.distributed.memory.rows import Chunk, Counters
from envolve.distributed.programs.collector import Collector
from envolve.distributed.programs.evaluator import Evaluator
from envolve.distributed.programs.learner import Learner
from envolve.distributed.programs.turns import (
    CollectorProgram,
    EvaluatorProgram,
    LearnerProgram,
    make_hub,
    run_embedded,
    widths_of,
)

SMALL: dict[str, Any] = {
    "hidden": (8, 8), "num_iter": 6, "num_steps_per_iter": 3, "batch_size": 8, "horizon": 10, "n_episodes_in_buffer": 8,
    "n_train_episodes_per_iter": 1, "n_eval_episodes": 2, "eval_period": 2, "checkpoint_period": 3, "log_period": 1,
    "n_buffer_init_episodes": 2,
}  # fmt: skip


class Steps(gymnasium.Env[np.ndarray, np.ndarray]):
    """Observation: (number of the episode if it ``counts``, which is a memory that no seed resets; step in it, mass, a
    random number of the episode). It ends itself after ``length`` steps, terminated where the last action was positive,
    else truncated. The reward is the action's sum."""

    def __init__(self, length: int = 4, counts: bool = False) -> None:
        self.observation_space = spaces.Box(-1e6, 1e6, (4,), np.float32)
        self.action_space = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))
        self.length, self.counts, self.mass = length, counts, 0.0
        self.episode, self.step_number, self.luck = -1, 0, 0.0
        self.actions: list[np.ndarray] = []
        self.pause = 0.0  # s that a step takes at least

    def _obs(self) -> np.ndarray:
        return np.array([self.episode * self.counts, self.step_number, self.mass, self.luck], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.step_number, self.luck = self.episode + 1, 0, float(self.np_random.random())
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        if self.pause:
            time.sleep(self.pause)
        self.step_number += 1
        over, positive = self.step_number >= self.length, bool(action[0] > 0)
        return self._obs(), float(action.sum()), over and positive, over and not positive, {}


class GoalSteps(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """The same for goals: achieved is (number of the episode, step in it), desired a step and a random number."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.action_space = steps, steps.action_space
        box = spaces.Box(-1e6, 1e6, (2,), np.float32)
        self.observation_space = spaces.Dict(
            {"observation": steps.observation_space, "achieved_goal": box, "desired_goal": box}
        )

    def _parts(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        return {"observation": obs, "achieved_goal": obs[:2], "desired_goal": np.array([2, obs[3]], np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return self._parts(self.steps.reset(seed=seed)[0]), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = self.steps.step(action)
        return self._parts(obs), reward, terminated, truncated, {"is_success": obs[1] == 2 and action[0] > 0}


class StepsParams(TrainParamsBase):
    """``length`` and ``counts`` of the environment are those of env_config; of CRL it has goals."""

    def env_ctor(self, seed: int, *args: Any, **kwargs: Any) -> Any:
        steps = Steps(self.env_config.get("length", 4), self.env_config.get("counts", False))
        return GoalSteps(steps) if self.algorithm == "CRL" else steps


def small(config: dict[str, Any] | None = None, **values: Any) -> StepsParams:
    return StepsParams(env_config=config or {}, **{**SMALL, **values})


class Run:
    """An embedded run in a folder, which can be stopped between two turns."""

    def __init__(self, params: TrainParamsBase, folder: Path, collectors: int = 1, mode: str = "lockstep") -> None:
        self.settings, self.widths = RunSettings(3, collectors, mode), widths_of(params)
        keys, lockstep = self.settings.keys(), self.settings.lockstep
        self.hub: Hub = make_hub(params, self.widths, self.settings, folder)
        self.news: list[Counters] = []
        self.chunks: list[Chunk] = []
        self.returns: list[tuple[int, dict[str, float]]] = []
        learner = Learner(params, self.widths, keys, folder)
        self.learner = LearnerProgram(learner, self.hub, lockstep, lambda _, progress: self.news.append(progress))
        workers = [Collector(params, i, collectors, keys, lockstep) for i in range(collectors)]
        self.collectors = [CollectorProgram(c, self.hub, self.chunks.append) for c in workers]
        self.evaluator = EvaluatorProgram(Evaluator(params, keys, folder), lambda *e: self.returns.append(e))

    def turn(self) -> None:
        """One iteration."""
        assert all([self.learner.publish(), *(c.turn() for c in self.collectors), self.learner.learn()])

    def finish(self) -> None:
        run_embedded(self.learner, self.collectors, self.evaluator)


def results(folder: Path) -> dict[str, bytes]:
    """What a lockstep run promises to the last byte."""
    files = [*folder.glob("policies/checkpoints/*.pt"), folder / "evaluations.csv", folder / "learner.pt"]
    return {path.name: path.read_bytes() for path in files}
