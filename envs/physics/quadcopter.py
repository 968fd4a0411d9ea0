"""A quadcopter that flies to a point and stays there, after IsaacGymEnvs' Quadcopter
(https://github.com/isaac-sim/IsaacGymEnvs, isaacgymenvs/tasks/quadcopter.py).

Reward, observation and time limit are that task's. Ours has rotors that do not tilt, so four actions and not twelve,
and published figures for its body; its goal differs from episode to episode.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envolve.envs.physics.task import Parameter, PhysicsTask, Pose, Quantity, Random, Reward, State, register
from envolve.envs.sim.rotations import rotate, rotate_inverse
from envolve.envs.sim.simulator import Simulator

HOVER = 0.716 * 9.81 / 4  # N per rotor
MAX_THRUST = 6.003  # N per rotor
LOST, CRASHED = 5.0, 0.3  # m: further from the goal, or lower, and the episode ends
TILT = 0.2  # rad, of roll and of pitch at the start


@register
class Quadcopter(PhysicsTask):
    """Score: minus the distance to the goal. One that has crashed or is lost counts as LOST away."""

    name = "Quadcopter"
    model = "quadcopter.xml"
    substeps = 2  # 0.01 s
    max_steps = 500
    action_size = 4
    score_unit = "m"
    score_meaning = "minus the mean distance to the goal"
    goal_size = 3
    goal_meaning = "where to hover, m, world frame"
    quantities = {
        "root_states": Quantity((13,), "m, -, m/s, rad/s", "position, quaternion xyzw, velocities; world frame"),
        "to_goal": Quantity((3,), "m", "from the quadcopter to the goal, world frame"),
        "linear_velocity": Quantity((3,), "m/s", "world frame"),
        "body_rates": Quantity((3,), "rad/s", "angular velocity in the quadcopter's own frame: roll, pitch, yaw rate"),
        "up": Quantity((3,), "", "the rotors' axis, world frame: (0, 0, 1) when level"),
    }
    parameters = {
        "goal_x": Parameter(-1.0, 1.0, "m", "world frame; episodes begin at (0, 0, 1.5)"),
        "goal_y": Parameter(-1.0, 1.0, "m", "world frame"),
        "goal_z": Parameter(1.0, 2.0, "m", "world frame"),
        "mass_scale": Parameter(1.0, 1.0, "", "mass and inertia, relative to the model's"),
        "gravity": Parameter(9.81, 9.81, "m/s^2", "downwards"),
    }

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        self.target = torch.zeros(sim.num_envs, 3, dtype=torch.float64, device=sim.device)  # the score's own copy
        self.axis = sim.root_state.new_tensor([0.0, 0.0, 1.0]).expand(sim.num_envs, 3)

    def measure(self) -> None:
        state, root = self.state, self.sim.root_state[:, 0]
        state["root_states"].copy_(root)
        state["linear_velocity"].copy_(root[:, 7:10])
        state["body_rates"].copy_(rotate_inverse(root[:, 3:7], root[:, 10:]))
        state["up"].copy_(rotate(root[:, 3:7], self.axis))
        state["to_goal"].copy_(state["goal"] - root[:, :3])
        state["torque"].clamp_(min=0)  # a rotor does not push downwards, whatever was asked of it

    def after_reset(self, ids: Tensor) -> None:
        self.target[ids] = self.state["goal"][ids].double()

    def score(self) -> Tensor:
        return -(self.sim.root_state[:, 0, :3].double() - self.target).norm(dim=1)

    def score_after_end(self) -> Tensor:
        return torch.full_like(self.target[:, 0], -LOST)

    @staticmethod
    def compute_reward(state: State) -> Reward:
        tilt, spin = (1 - state["up"][:, 2]).abs(), state["root_states"][:, 12].abs()
        near = 1 / (1 + state["to_goal"].square().sum(1))
        upright, still = near / (1 + tilt.square()), near / (1 + spin.square())
        return near + upright + still, {"near": near, "upright": upright, "still": still}

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        quaternion = state["root_states"][:, 3:7]
        parts = (state["to_goal"] / 3, quaternion, state["linear_velocity"] / 2, state["body_rates"] / math.pi)
        return torch.cat(parts, 1)

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        """Thrusts of the rotors front, left, back, right, N; action 0 hovers."""
        return (HOVER * (1 + action)).clamp(0, MAX_THRUST)

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return (state["to_goal"].norm(dim=1) > LOST) | (state["root_states"][:, 2] < CRASHED)

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        """At the model's place, at rest, a little tilted."""
        roll, pitch = (TILT / 2 * (2 * random.uniform[:, :2].double() - 1)).unbind(1)  # half the angles
        root = rest.root_state.clone()
        # q = roll about x, after pitch about y
        parts = (roll.sin() * pitch.cos(), roll.cos() * pitch.sin(), roll.sin() * pitch.sin(), roll.cos() * pitch.cos())
        root[:, 0, 3:7] = torch.stack(parts, 1)
        return Pose(root, rest.joint_position, rest.joint_velocity)

    @staticmethod
    def compute_goal(state: State, random: Random) -> Tensor:
        return torch.stack((state["goal_x"], state["goal_y"], state["goal_z"]), 1)
