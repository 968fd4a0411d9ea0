"""HalfCheetah: a planar robot of seven links runs. Gymnasium's HalfCheetah-v5, after Wawrzynski (2009), step for step
(https://gymnasium.farama.org/environments/mujoco/half_cheetah/)."""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.envs.physics.common import columns, gaussian_noise, parameters, row
from envolve.envs.physics.task import PhysicsTask, Pose, Quantity, Random, Reward, State, register
from envolve.envs.sim.simulator import Simulator

GEAR = (
    120.0,
    90.0,
    60.0,
    120.0,
    60.0,
    30.0,
)  # N m, the largest torque: back thigh, shin, foot, front thigh, shin, foot
LEGS = "back thigh, shin, foot, front thigh, shin, foot"


@register
class HalfCheetah(PhysicsTask):
    """Score: how fast it ran forwards."""

    name = "HalfCheetah"
    model = "half_cheetah.xml"
    substeps = 5  # 0.05 s
    max_steps = 1000
    action_size = 6
    score_unit = "m/s"
    score_meaning = "mean forward velocity of the torso"
    quantities = {  # in the order of MuJoCo's coordinates, which measure() copies in two blocks
        "torso_position": Quantity((2,), "m", "x forwards and z upwards from where the model rests, world"),
        "torso_pitch": Quantity((), "rad", "0 level, positive nose down"),
        "joint_position": Quantity((6,), "rad", f"{LEGS}, 0 at rest"),
        "torso_velocity": Quantity((2,), "m/s", "x and z, world"),
        "torso_pitch_velocity": Quantity((), "rad/s", "positive nose down"),
        "joint_velocity": Quantity((6,), "rad/s", LEGS),
        "forward_velocity": Quantity((), "m/s", "mean over the last control step, of the torso along x"),
    }
    parameters = parameters(
        0.1, "m, rad", "positions begin within +- this, velocities normal with this deviation (per s)"
    )

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        self._position = columns(self, "torso_position", "joint_position")
        self._velocity = columns(self, "torso_velocity", "joint_velocity")
        self._x = sim.joint_position[:, 0].clone()  # m, before the step

    def _forward(self) -> Tensor:
        return (self.sim.joint_position[:, 0] - self._x) / self.dt

    def measure(self) -> None:
        self._position.copy_(self.sim.joint_position)
        self._velocity.copy_(self.sim.joint_velocity)

    def before_step(self) -> None:
        self._x.copy_(self.sim.joint_position[:, 0])

    def after_step(self) -> None:
        self.state["forward_velocity"].copy_(self._forward())

    def after_reset(self, ids: Tensor) -> None:
        self.state["forward_velocity"][ids] = self.state["torso_velocity"][ids, 0]

    def score(self) -> Tensor:
        return self._forward().double()

    @staticmethod
    def compute_reward(state: State) -> Reward:
        control = state["torque"] / row(GEAR, state["torque"])
        components = {"forward": state["forward_velocity"], "control": -0.1 * control.square().sum(1)}
        return components["forward"] + components["control"], components

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        """17: torso's z and pitch, 6 joints; velocities of x, z, pitch, 6 joints."""
        return torch.cat(
            (
                state["torso_position"][:, 1:],
                state["torso_pitch"][:, None],
                state["joint_position"],
                state["torso_velocity"],
                state["torso_pitch_velocity"][:, None],
                state["joint_velocity"],
            ),
            1,
        )

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        return action.clamp(-1, 1) * row(GEAR, action)

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return torch.zeros_like(state["torso_pitch"], dtype=torch.bool)

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        position, velocity = gaussian_noise(random, 9, 9, state["reset_noise"])
        return Pose(rest.root_state, rest.joint_position + position, rest.joint_velocity + velocity)
