"""Robots whose torso is a free body with limbs: what Ant and Humanoid share. In Gymnasium's words, Ant-v5 and
Humanoid-v5 (https://gymnasium.farama.org/environments/mujoco/)."""

from __future__ import annotations

from typing import ClassVar, Dict, Tuple

import torch
from torch import Tensor

from envolve.envs.physics.common import columns
from envolve.envs.physics.task import PhysicsTask, Pose, Quantity, State
from envolve.envs.sim.rotations import rotate, rotate_inverse, to_wxyz
from envolve.envs.sim.simulator import Simulator


def walker_quantities(joints: int, order: str, bodies: int, bodies_order: str) -> Dict[str, Quantity]:
    """The state of a walker; the first four are laid out as Simulator.root_state."""
    wrench = (
        "external torque about the robot's centre of mass, and force, on each body; world axes, before the last substep"
    )
    return {
        "torso_position": Quantity((3,), "m", "world"),
        "torso_rotation": Quantity((4,), "", "quaternion (x, y, z, w), torso to world coordinates"),
        "torso_velocity": Quantity((3,), "m/s", "world"),
        "torso_angular_velocity": Quantity((3,), "rad/s", "world"),
        "joint_position": Quantity((joints,), "rad", order),
        "joint_velocity": Quantity((joints,), "rad/s", order),
        "contact_wrench": Quantity((bodies, 6), "N m, N", f"{wrench}. Bodies: {bodies_order}"),
        "forward_velocity": Quantity((), "m/s", "along x, mean over a control step that ends before the last substep"),
    }


class Walker(PhysicsTask):
    """Sub-classes name what Gymnasium measures the forward velocity of: ``lagging`` is the engine's field of positions
    [N, 1 + B, 3], of which it is row 1."""

    lagging: ClassVar[str]
    outputs: ClassVar[Tuple[str, ...]]
    score_unit = "m/s"
    score_meaning = "mean velocity of the torso along x, over max_steps; 0 after the episode's own end"

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        self._torso = columns(self, "torso_position", "torso_angular_velocity")
        self._x, self._lagging_x = sim.root_state[:, 0, 0].clone(), self._lagging().clone()  # m, before the step

    def _lagging(self) -> Tensor:
        """The x that Gymnasium's reward is of, before the last substep: m [N]."""
        return self.sim.output(self.lagging)[:, 1, 0]

    def measure(self) -> None:
        state, sim = self.state, self.sim
        self._torso.copy_(sim.root_state[:, 0])
        state["joint_position"].copy_(sim.joint_position)
        state["joint_velocity"].copy_(sim.joint_velocity)
        state["contact_wrench"].copy_(sim.output("cfrc_ext")[:, 1:])

    def before_step(self) -> None:
        self._x.copy_(self.sim.root_state[:, 0, 0])
        self._lagging_x.copy_(self._lagging())

    def after_step(self) -> None:
        self.state["forward_velocity"].copy_((self._lagging() - self._lagging_x) / self.dt)

    def after_reset(self, ids: Tensor) -> None:
        self.state["forward_velocity"][ids] = self.state["torso_velocity"][ids, 0]

    def score(self) -> Tensor:
        return ((self.sim.root_state[:, 0, 0] - self._x) / self.dt).double()


def posture(state: State) -> Tensor:
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
