"""Ant: a torso on four legs of two joints each walks. Gymnasium's Ant-v5, after Schulman et al. (2015), but for the
integrator: with Gymnasium's RK4 it is Ant-v5 step for step (https://gymnasium.farama.org/environments/mujoco/ant/)."""

from __future__ import annotations

import torch
from torch import Tensor

from envs.physics.common import TORSO, columns, gaussian_noise, noisy_pose, parameters, torso_posture
from envs.physics.task import PhysicsTask, Pose, Quantity, Random, Reward, State, register
from envs.sim.simulator import Simulator

GEAR = 150.0  # N m, the largest torque
HEALTHY = (0.2, 1.0)  # m, the torso's height
LEGS = "hip and ankle of legs 1 to 4, which point to (+x, +y), (-x, +y), (-x, -y), (+x, -y)"


@register
class Ant(PhysicsTask):
    """Score: how fast it went along x, after its end 0. ``torque`` is of hip and ankle of legs 4, 1, 2, 3."""

    name = "Ant"
    model = "ant.xml"
    substeps = 5  # 0.05 s
    max_steps = 1000
    action_size = 8
    outputs = ("xpos", "cfrc_ext")
    score_unit = "m/s"
    score_meaning = "mean velocity of the torso along x, over max_steps; 0 after the episode's own end"
    quantities = {
        **TORSO,
        "joint_position": Quantity((8,), "rad", LEGS),
        "joint_velocity": Quantity((8,), "rad/s", LEGS),
        "contact_wrench": Quantity(
            (13, 6), "N m, N", "external torque about the robot's centre of mass, and force, on each body; world axes, "
            "before the last substep. Bodies: torso, then per leg its root (0: welded to the torso), thigh, shin"
        ),
        "forward_velocity": Quantity(
            (), "m/s", "along x, of the torso over the last control step; positions before the last substep"
        ),
    }  # fmt: skip
    parameters = parameters(
        0.1, "m, rad", "positions begin within +- this, velocities normal with this deviation (per s)"
    )

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        self._torso = columns(self, "torso_position", "torso_angular_velocity")
        self._x, self._lagging_x = sim.root_state[:, 0, 0].clone(), self._lagging().clone()  # m, before the step

    def _lagging(self) -> Tensor:
        """The torso's x before the last substep, m [N]: what Gymnasium's reward is of."""
        return self.sim.output("xpos")[:, 1, 0]

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
        velocity = (self.sim.root_state[:, 0, 0] - self._x) / self.dt
        return velocity.double().masked_fill(self.sim.unstable, 0.0)

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
        return torch.cat((torso_posture(state), state["contact_wrench"].flatten(1).clamp(-1, 1)), 1)

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
