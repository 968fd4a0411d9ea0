"""What tasks taken over from Gymnasium share (https://gymnasium.farama.org/environments/mujoco/)."""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Tuple

import torch
from torch import Tensor

from envolve.envs.physics.task import Parameter, PhysicsTask, Random

GRAVITY = 9.81  # m/s^2


def parameters(reset_noise: float, unit: str, meaning: str, gravity: float = GRAVITY) -> Dict[str, Parameter]:
    """What a curriculum or domain randomisation may move; as it is, Gymnasium's task."""
    return {
        "mass_scale": Parameter(1.0, 1.0, "", "masses and inertias, relative to the model"),
        "friction_scale": Parameter(1.0, 1.0, "", "coefficients of friction, relative to the model"),
        "gravity": Parameter(gravity, gravity, "m/s^2", "downwards"),
        "reset_noise": Parameter(reset_noise, reset_noise, unit, meaning),
    }


@lru_cache(maxsize=None)
def _row(values: Tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device)


def row(values: Tuple[float, ...], like: Tensor) -> Tensor:
    """Constants as float32 on the device of ``like``. Made once: a copy to a GPU would wait for it."""
    return _row(values, like.device)


def columns(task: PhysicsTask, first: str, last: str) -> Tensor:
    """The columns of the buffer that hold ``first`` to ``last`` of the task's state, as one view [N, C]."""
    begin = task.state[first].storage_offset()
    end = task.state[last].storage_offset() + task.state[last][0].numel()
    return task.buffer[:, begin:end]


def noise(uniform: Tensor, scale: Tensor) -> Tensor:
    """Uniform in +- scale, float64. uniform: [n, C] in [0, 1); scale: [n]."""
    return (2 * uniform.double() - 1) * scale.double()[:, None]


def gaussian_noise(random: Random, positions: int, velocities: int, scale: Tensor) -> Tuple[Tensor, Tensor]:
    """Gymnasium's most common noise: positions uniform in +- scale, velocities normal of that deviation."""
    return noise(random.uniform[:, :positions], scale), random.normal[:, :velocities].double() * scale.double()[:, None]
