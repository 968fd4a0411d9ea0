"""What tasks taken over from Gymnasium share (https://gymnasium.farama.org/environments/mujoco/)."""

from __future__ import annotations

from functools import lru_cache
from typing import Dict, Tuple

import torch
from torch import Tensor

from envs.physics.task import Parameter, PhysicsTask, Pose, Quantity, Random, State
from envs.sim.rotations import rotate, rotate_inverse, to_wxyz

GRAVITY = 9.81  # m/s^2

# The first columns of the state of a task whose robot is one free body with limbs: laid out as Simulator.root_state.
TORSO: Dict[str, Quantity] = {
    "torso_position": Quantity((3,), "m", "world"),
    "torso_rotation": Quantity((4,), "", "quaternion (x, y, z, w), torso to world coordinates"),
    "torso_velocity": Quantity((3,), "m/s", "world"),
    "torso_angular_velocity": Quantity((3,), "rad/s", "world"),
}


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


def torso_posture(state: State) -> Tensor:
    """Gymnasium's positions, then velocities, of a free body with limbs, but for its x and y: [N, 1 + 4 + D + 6 + D].
    As MuJoCo has them: quaternion (w, x, y, z), angular velocity in the torso's frame."""
    rotation = state["torso_rotation"]
    return torch.cat(
        (
            state["torso_position"][:, 2:],
            to_wxyz(rotation),
            state["joint_position"],
            state["torso_velocity"],
            rotate_inverse(rotation, state["torso_angular_velocity"]),
            state["joint_velocity"],
        ),
        1,
    )


def noisy_pose(rest: Pose, position: Tensor, velocity: Tensor) -> Pose:
    """``rest`` with Gymnasium's noise on MuJoCo's coordinates: position [n, 7 + D], velocity [n, 6 + D], float64."""
    n = len(position)
    root = rest.root_state.expand(n, 1, 13).clone()
    root[:, 0, :3] += position[:, :3]
    rotation = root[:, 0, 3:7] + position[:, [4, 5, 6, 3]]  # the noise is of (w, x, y, z)
    root[:, 0, 3:7] = rotation = rotation / rotation.norm(dim=1, keepdim=True)  # MuJoCo does so when it is used
    root[:, 0, 7:10] += velocity[:, :3]
    root[:, 0, 10:] += rotate(rotation, velocity[:, 3:6])
    return Pose(root, rest.joint_position + position[:, 7:], rest.joint_velocity + velocity[:, 6:])


def gaussian_noise(random: Random, positions: int, velocities: int, scale: Tensor) -> Tuple[Tensor, Tensor]:
    """Gymnasium's most common noise: positions uniform in +- scale, velocities normal of that deviation."""
    return noise(random.uniform[:, :positions], scale), random.normal[:, :velocities].double() * scale.double()[:, None]
