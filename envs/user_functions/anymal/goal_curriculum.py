"""Commands grow with what the robot can do: after an episode of the whole time they come from the task's range, after
an early fall from a fifth of it."""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

from envolve.envs.physics.task import Random

WHOLE = 1000.0  # control steps


def compute_goal(state: Dict[str, Tensor], random: Random) -> Tensor:
    lasted = (state["progress"] / WHOLE).clamp(0, 1)[:, None]  # of the episode that has just ended
    task = torch.stack((state["command_x"], state["command_y"], state["command_yaw"]), 1)
    return (0.2 + 0.8 * lasted) * task
