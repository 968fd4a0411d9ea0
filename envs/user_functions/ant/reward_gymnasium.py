"""The human's reward, Ant-v5's: forward velocity, survival, less the costs of control and of contacts."""

from __future__ import annotations

from typing import Dict

from torch import Tensor

from envolve.envs.physics.ant import Ant


def compute_reward(state: Dict[str, Tensor]):
    return Ant.compute_reward(state)
