"""Gymnasium's reward with ten times the cost of control: standing still pays."""

from __future__ import annotations

from typing import Dict

from torch import Tensor

from envolve.envs.physics.ant import GEAR


def compute_reward(state: Dict[str, Tensor]) -> Tensor:
    return state["forward_velocity"] + 1 - 5 * (state["torque"] / GEAR).square().sum(1)
