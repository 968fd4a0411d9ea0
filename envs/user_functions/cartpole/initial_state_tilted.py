"""Episodes begin tilted by up to 6 degrees: falls are seen earlier."""

from __future__ import annotations

from typing import Dict

from torch import Tensor

from envolve.envs.physics.task import Pose, Random


def compute_initial_state(state: Dict[str, Tensor], random: Random, rest: Pose) -> Pose:
    u = 2 * random.uniform[:, :4].double() - 1
    scale = u.new_tensor([0.5, 0.1, 0.1, 0.1])  # m, rad; m/s, rad/s
    return Pose(rest.root_state, scale[:2] * u[:, :2], scale[2:] * u[:, 2:])
