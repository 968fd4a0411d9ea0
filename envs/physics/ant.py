"""Ant: a torso on four legs of two joints each walks. Gymnasium's Ant-v5, after Schulman et al. (2015), but for the
integrator: with Gymnasium's RK4 it is Ant-v5 step for step (https://gymnasium.farama.org/environments/mujoco/ant/)."""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.envs.physics.common import gaussian_noise, parameters
from envolve.envs.physics.task import Pose, Random, Reward, State, register
from envolve.envs.physics.walker import Walker, noisy_pose, posture, walker_quantities

GEAR = 150.0  # N m, the largest torque
HEALTHY = (0.2, 1.0)  # m, the torso's height


@register
class Ant(Walker):
    """Score: how fast it went along x, after its end 0. ``torque`` is of hip and ankle of legs 4, 1, 2, 3."""

    name = "Ant"
    model = "ant.xml"
    substeps = 5  # 0.05 s
    max_steps = 1000
    action_size = 8
    lagging = "xpos"  # the torso's
    outputs = ("xpos", "cfrc_ext")
    quantities = walker_quantities(
        8,
        "hip and ankle of legs 1 to 4, which point to (+x, +y), (-x, +y), (-x, -y), (+x, -y)",
        13,
        "torso, then per leg its root (0: welded to the torso), thigh, shin",
    )
    parameters = parameters(
        0.1, "m, rad", "positions begin within +- this, velocities normal with this deviation (per s)"
    )

    @staticmethod
    def compute_reward(state: State) -> Reward:
        control = state["torque"] / GEAR
        wrench = state["contact_wrench"].flatten(1).clamp(-1, 1)
        components = {
            "forward": state["forward_velocity"],
            "survive": (~_fallen(state)).float(),
            "control": -0.5 * control.square().sum(1),
            "contact": -5e-4 * wrench.square().sum(1),
        }
        return torch.stack(list(components.values())).sum(0), components

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        """105: torso's z and rotation, 8 joints; velocities of the torso (6) and joints; contact wrenches in +-1."""
        return torch.cat((posture(state), state["contact_wrench"].flatten(1).clamp(-1, 1)), 1)

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        return action.clamp(-1, 1) * GEAR

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return _fallen(state)

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        return noisy_pose(rest, *gaussian_noise(random, 15, 14, state["reset_noise"]))


def _fallen(state: State) -> Tensor:
    z = state["torso_position"][:, 2]
    return ~((z >= HEALTHY[0]) & (z <= HEALTHY[1]))  # so that NaN has fallen
