"""Humanoid: a body with 17 joints walks on two legs. Gymnasium's Humanoid-v5, after Tassa et al. (2012), but for
integrator and solver: with Gymnasium's RK4 and PGS it is Humanoid-v5 step for step
(https://gymnasium.farama.org/environments/mujoco/humanoid/)."""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.envs.physics.common import noise, parameters, row
from envolve.envs.physics.task import Pose, Quantity, Random, Reward, State, register
from envolve.envs.physics.walker import Walker, noisy_pose, posture, walker_quantities

GEAR = (100.0,) * 5 + (300.0, 200.0) + (100.0,) * 2 + (300.0, 200.0) + (25.0,) * 6  # N m per unit of control
CONTROL = 0.4  # the largest control
EFFORT = tuple(CONTROL * gear for gear in GEAR)  # N m, the largest torque
HEALTHY = (1.0, 2.0)  # m, the torso's height
JOINTS = (
    "abdomen z, y, x; right hip x, z, y and knee; left hip x, z, y and knee; right shoulder 1, 2 and elbow; left "
    "shoulder 1, 2 and elbow"
)
BODIES = "torso, waist, pelvis; right, then left: thigh, shin, foot; right, then left: upper arm, lower arm"


@register
class Humanoid(Walker):
    """Score: how fast it went along x, after its fall 0. ``torque`` is of the abdomen's y, z, x, then as the joints."""

    name = "Humanoid"
    model = "humanoid.xml"
    substeps = 5  # 0.015 s
    max_steps = 1000
    action_size = 17
    random_numbers = 48
    lagging = "subtree_com"  # the whole body's centre of mass
    outputs = ("subtree_com", "cfrc_ext", "cinert", "cvel")
    quantities = {
        **walker_quantities(17, JOINTS, 13, BODIES),
        "body_inertia": Quantity(
            (13, 10),
            "kg m^2, kg m, kg",
            "about the robot's centre of mass, world axes: Ixx, Iyy, Izz, Ixy, Ixz, Iyz; mass times offset; mass",
        ),
        "body_velocity": Quantity(
            (13, 6), "rad/s, m/s", "world axes: angular, linear of the body's point at the robot's centre of mass"
        ),
    }
    parameters = parameters(0.01, "m, rad, m/s, rad/s", "positions and velocities begin within +- this")

    def measure(self) -> None:
        super().measure()
        self.state["body_inertia"].copy_(self.sim.output("cinert")[:, 1:])
        self.state["body_velocity"].copy_(self.sim.output("cvel")[:, 1:])

    @staticmethod
    def compute_reward(state: State) -> Reward:
        control = state["torque"] / row(GEAR, state["torque"])
        contact = 5e-7 * state["contact_wrench"].flatten(1).square().sum(1)
        components = {
            "forward": 1.25 * state["forward_velocity"],
            "survive": 5.0 * (~_fallen(state)).float(),
            "control": -0.1 * control.square().sum(1),
            "contact": -contact.clamp_max(10.0),
        }
        return torch.stack(list(components.values())).sum(0), components

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        """348: torso's z and rotation, 17 joints; velocities of the torso (6) and joints; inertias and velocities of
        the bodies; torques in the order of the joints; contact wrenches."""
        torque = state["torque"]
        return torch.cat(
            (
                posture(state),
                state["body_inertia"].flatten(1),
                state["body_velocity"].flatten(1),
                torque[:, 1:2],
                torque[:, :1],
                torque[:, 2:],
                state["contact_wrench"].flatten(1),
            ),
            1,
        )

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        return action.clamp(-1, 1) * row(EFFORT, action)

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return _fallen(state)

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        position, velocity = noise(random.uniform[:, :47], state["reset_noise"]).split((24, 23), 1)
        return noisy_pose(rest, position, velocity)


def _fallen(state: State) -> Tensor:
    z = state["torso_position"][:, 2]
    return ~((z > HEALTHY[0]) & (z < HEALTHY[1]))  # so that NaN has fallen
