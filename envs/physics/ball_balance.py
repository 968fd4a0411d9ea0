"""A ball to be kept on a plate that tilts about two axes, after IsaacGymEnvs' BallBalance
(https://github.com/isaac-sim/IsaacGymEnvs, isaacgymenvs/tasks/ball_balance.py).

Sizes, reward and time limit are that task's. Ours has a gimbal where it has three legs, and the ball begins on the
plate and rolling, where there it is dropped from a height.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envolve.envs.physics.task import Parameter, PhysicsTask, Pose, Quantity, Random, Reward, State, register
from envolve.envs.sim.simulator import Simulator

PLATE, BALL, SURFACE, HEIGHT = 0.5, 0.1, 0.01, 0.7  # m: radii; surface above the axes, which are at this height
STIFFNESS, DAMPING, MAX_TILT = 50.0, 4.5, 0.3  # N m/rad, N m s/rad, rad


@register
class BallBalance(PhysicsTask):
    """Score: the share of the time limit for which the ball is on the plate."""

    name = "BallBalance"
    model = "ball_balance.xml"
    substeps = 2  # 0.01 s
    max_steps = 500
    action_size = 2
    score_unit = "share of the time limit"
    score_meaning = "the ball is on the plate"
    quantities = {
        "plate_angles": Quantity((2,), "rad", "of the plate about the world's x and then about its own y"),
        "plate_rates": Quantity((2,), "rad/s", "of those angles"),
        "ball_position": Quantity((3,), "m", "from its place at rest in the plate's middle, world frame"),
        "ball_velocity": Quantity((3,), "m/s", "world frame"),
        "ball_spin": Quantity((3,), "rad/s", "angular velocity of the ball, world frame"),
        "ball_on_plate": Quantity(
            (3,), "m", "from the plate's middle, plate's frame; z: the gap between ball and plate"
        ),
    }
    parameters = {
        "ball_distance": Parameter(0.0, 0.3, "m", "of the ball from the plate's middle when the episode begins"),
        "ball_speed": Parameter(0.0, 0.5, "m/s", "of the ball then, in any direction"),
        "mass_scale": Parameter(1.0, 1.0, "", "masses and inertias, relative to the model's"),
        "gravity": Parameter(9.81, 9.81, "m/s^2", "downwards"),
    }

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        self.centre = sim.root_state.new_tensor([0.0, 0.0, HEIGHT])
        self.on_plate = sim.root_state.new_zeros(sim.num_envs, 3)

    def measure(self) -> None:
        state, sim = self.state, self.sim
        ball = sim.root_state[:, 0]
        arm = ball[:, :3] - self.centre
        state["plate_angles"].copy_(sim.joint_position)
        state["plate_rates"].copy_(sim.joint_velocity)
        state["ball_position"].copy_(arm)
        state["ball_position"][:, 2] -= SURFACE + BALL
        state["ball_velocity"].copy_(ball[:, 7:10])
        state["ball_spin"].copy_(ball[:, 10:])
        self.on_plate = _in_plate(arm, sim.joint_position)
        self.on_plate[:, 2] -= SURFACE + BALL
        state["ball_on_plate"].copy_(self.on_plate)

    def score(self) -> Tensor:
        return (~_off(self.on_plate)).double()

    @staticmethod
    def compute_reward(state: State) -> Reward:
        near = 1 / (1 + state["ball_position"].norm(dim=1))
        slow = 1 / (1 + state["ball_velocity"].norm(dim=1))
        return near * slow, {"near": near, "slow": slow}

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        names = ("plate_angles", "plate_rates", "ball_position", "ball_velocity")
        return torch.cat([state[name] for name in names], 1)

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        """The action is the tilt that is wanted, relative to MAX_TILT."""
        return STIFFNESS * (MAX_TILT * action - state["plate_angles"]) - DAMPING * state["plate_rates"]

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return _off(state["ball_on_plate"])

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        """On a level plate, rolling without slip."""
        place, course = (2 * math.pi * random.uniform[:, :2].double()).unbind(1)
        distance, speed = state["ball_distance"].double(), state["ball_speed"].double()
        root = rest.root_state.clone()
        root[:, 0, 0], root[:, 0, 1] = distance * place.cos(), distance * place.sin()
        velocity = torch.stack((speed * course.cos(), speed * course.sin()), 1)
        root[:, 0, 7:9] = velocity
        root[:, 0, 10], root[:, 0, 11] = -velocity[:, 1] / BALL, velocity[:, 0] / BALL  # v = w x (radius upwards)
        return Pose(root, rest.joint_position, rest.joint_velocity)


def _in_plate(arm: Tensor, angles: Tensor) -> Tensor:
    """A vector of the world [N, 3] in the frame of the plate, which is turned by Rx(a) Ry(b)."""
    (x, y, z), (a, b) = arm.unbind(1), angles.unbind(1)
    y, z = a.cos() * y + a.sin() * z, a.cos() * z - a.sin() * y
    return torch.stack((b.cos() * x - b.sin() * z, y, b.sin() * x + b.cos() * z), 1)


def _off(on_plate: Tensor) -> Tensor:
    """Its middle is beyond the rim, or lower than the surface."""
    return (on_plate[:, :2].norm(dim=1) > PLATE) | (on_plate[:, 2] < -BALL)
