"""mjlab itself, as it is installed in an environment of its own (make test-mjlab)."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.managers.draws import Draws

needs_mjlab = pytest.mark.skipif(
    importlib.util.find_spec("mjlab") is None, reason="mjlab is not installed here: make test-mjlab"
)
CARTPOLE, GO1 = "Mjlab-Cartpole-Balance", "Mjlab-Velocity-Flat-Unitree-Go1"
G1, LIFT = "Mjlab-Velocity-Flat-Unitree-G1", "Mjlab-Lift-Cube-Yam"


class PlainEnvironment:
    """mjlab's own environment, one of them, with its own managers and nothing of this project but the source of random
    numbers: those of environment n of a candidate with this key."""

    def __init__(self, task: str, key: int, n: int, origin: Tensor) -> None:
        from mjlab.envs import ManagerBasedRlEnv
        from mjlab.tasks.registry import load_env_cfg

        from envolve.envs.managers.environment import quiet

        cfg = load_env_cfg(task)
        cfg.scene.num_envs, cfg.seed, cfg.auto_reset = 1, 0, False
        cfg.sim.nconmax = 8 * (cfg.sim.nconmax or 64)  # worlds share a pool of contacts; one alone would fill its own
        self.n = n
        self.draws = Draws(torch.zeros(1, dtype=torch.int64), 1, torch.device("cpu"))
        self.set_key(rng.fold(torch.tensor([key]), rng.RESET))
        with quiet(), self.draws:
            self.env: Any = ManagerBasedRlEnv(cfg=cfg, device="cpu")
        self.env.scene.terrain.env_origins = origin.clone()[None]

    def set_key(self, key: Tensor) -> None:
        self.draws.begin(key)
        self.draws._key = rng.bits(rng.fold(key, rng.MANAGERS), torch.tensor([self.n]))

    def begin(self, key: int) -> dict[str, Tensor]:
        self.set_key(rng.fold(torch.tensor([key]), rng.RESET))
        return self.reset()

    def reset(self) -> dict[str, Tensor]:
        with self.draws:
            found: dict[str, Tensor] = self.env.reset(env_ids=torch.tensor([0]))[0]
        return found

    def step(self, action: Tensor) -> tuple[dict[str, Tensor], Tensor, bool, bool]:
        """Observations of the step's end, reward [1], terminated, timed out; the caller resets."""
        with self.draws:
            obs, reward, terminated, timed_out, _ = self.env.step(action[None])
        return obs, reward.clone(), bool(terminated[0]), bool(timed_out[0])
