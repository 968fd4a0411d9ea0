"""CartPole in a physics engine: a pole hinged to a cart that a force pushes along a rail."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envolve.envs.physics.task import Parameter, PhysicsTask, Pose, Quantity, Random, Reward, State, register

RAIL = 2.4  # m, from the middle to either end
FALLEN = math.radians(12)
FORCE = 10.0  # N


@register
class CartPole(PhysicsTask):
    """Score: the share of the time limit for which the pole stood within 12 degrees and the cart on the rail."""

    name = "Cartpole"
    model = "cartpole.xml"
    substeps = 4  # 0.02 s, as Gymnasium's
    max_steps = 500
    action_size = 1
    score_unit = "share of the time limit"
    score_meaning = "the pole stands within 12 degrees and the cart is on the rail"
    quantities = {
        "cart_position": Quantity((), "m", "along the rail, 0 in its middle"),
        "cart_velocity": Quantity((), "m/s", "along the rail"),
        "pole_angle": Quantity((), "rad", "0 upright, positive towards positive cart_position"),
        "pole_angular_velocity": Quantity((), "rad/s", ""),
    }
    parameters = {"initial_range": Parameter(0.05, 0.05, "m, m/s, rad, rad/s", "episodes begin within +- this")}

    def measure(self) -> None:
        state, sim = self.state, self.sim
        state["cart_position"].copy_(sim.joint_position[:, 0])
        state["cart_velocity"].copy_(sim.joint_velocity[:, 0])
        state["pole_angle"].copy_(sim.joint_position[:, 1])
        state["pole_angular_velocity"].copy_(sim.joint_velocity[:, 1])

    def score(self) -> Tensor:
        return (~_fallen(self.sim.joint_position[:, 0], self.sim.joint_position[:, 1])).double()

    @staticmethod
    def compute_reward(state: State) -> Reward:
        return torch.ones_like(state["pole_angle"])

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        names = ("cart_position", "cart_velocity", "pole_angle", "pole_angular_velocity")
        return torch.stack([state[name] for name in names], 1)

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        return action.clamp(-1, 1) * FORCE

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return _fallen(state["cart_position"], state["pole_angle"])

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        u = (2 * random.uniform[:, :4] - 1).double() * state["initial_range"][:, None]
        return Pose(rest.root_state, rest.joint_position + u[:, [0, 2]], rest.joint_velocity + u[:, [1, 3]])


def _fallen(position: Tensor, angle: Tensor) -> Tensor:
    return (position.abs() > RAIL) | (angle.abs() > FALLEN)
