"""ANYmal, a quadruped that is told how to move, after IsaacGymEnvs' Anymal
(https://github.com/isaac-sim/IsaacGymEnvs, isaacgymenvs/cfg/task/Anymal.yaml; Rudin et al. 2021,
https://arxiv.org/abs/2109.11978, tell of its successor).

Ranges, gains, pose and reward are that task's; control is at 50 Hz as there, in four engine steps of 5 ms, and an
episode lasts 20 s, not 50 s. Torques are computed once per control step and held.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.envs.physics.common import row
from envolve.envs.physics.task import Parameter, PhysicsTask, Pose, Quantity, Random, Reward, State, register
from envolve.envs.sim.rotations import rotate_inverse
from envolve.envs.sim.simulator import CONTACT_FORCE, Simulator

# Joints and legs in the order of the state: left/right fore/hind, each hip abduction, hip flexion, knee flexion.
DEFAULT_POSITION = (0.03, 0.4, -0.8, -0.03, 0.4, -0.8, 0.03, -0.4, 0.8, -0.03, -0.4, 0.8)  # rad
STIFFNESS, DAMPING, ACTION_SCALE = 85.0, 2.0, 0.5  # N m/rad, N m s/rad, rad
TORQUE_LIMIT = 80.0  # N m
CONTACT = 1.0  # N: a part that feels more touches the ground
# Rows of contact_forces: the base, then hip, thigh and shank (which ends in the foot) of each leg.
BASE, THIGHS, SHANKS = 0, (2, 5, 8, 11), (3, 6, 9, 12)
LINEAR_SCALE, ANGULAR_SCALE, VELOCITY_SCALE = 2.0, 0.25, 0.05  # of velocities in the observation
DT = 0.02  # s


@register
class Anymal(PhysicsTask):
    """Score: minus |v_xy - v*_xy| + |w_z - w*_z| (m/s + rad/s, base frame), Eureka's metric of this task. A robot that
    has fallen scores on as if it stood still."""

    name = "Anymal"
    model = "anymal.xml"
    substeps = 4
    max_steps = 1000
    action_size = 12
    outputs = (CONTACT_FORCE,)
    score_unit = "m/s + rad/s"
    score_meaning = "minus the error of the base's velocity in the plane, minus that of its yaw rate"
    goal_size = 3
    goal_meaning = "velocity asked of the base: forwards m/s, to the left m/s, yaw rate rad/s; base frame"
    quantities = {
        "root_states": Quantity(
            (13,), "m, -, m/s, rad/s", "base: position, quaternion xyzw, linear velocity, angular velocity; world frame"
        ),
        "dof_pos": Quantity((12,), "rad", "joint angles: legs LF, RF, LH, RH, each HAA, HFE, KFE"),
        "dof_vel": Quantity((12,), "rad/s", "joint velocities, same order"),
        "default_dof_pos": Quantity((12,), "rad", "the pose that action 0 asks for"),
        "commands": Quantity((3,), "m/s, m/s, rad/s", "the goal, under the name IsaacGymEnvs gives it"),
        "contact_forces": Quantity(
            (13, 3), "N", "net, world frame; rows: base 0, then hip, thigh, shank with foot of LF (1-3), RF, LH, RH"
        ),
        "gravity_vec": Quantity((3,), "", "(0, 0, -1), world frame"),
        "base_lin_vel": Quantity((3,), "m/s", "of the base, base frame: x forwards, y to the left, z up"),
        "base_ang_vel": Quantity((3,), "rad/s", "of the base, base frame; the last is the yaw rate"),
        "projected_gravity": Quantity((3,), "", "gravity's direction, base frame: (0, 0, -1) when level"),
    }
    parameters = {
        "command_x": Parameter(-2.0, 2.0, "m/s", "forward velocity asked for"),
        "command_y": Parameter(-1.0, 1.0, "m/s", "velocity to the left asked for"),
        "command_yaw": Parameter(-1.0, 1.0, "rad/s", "yaw rate asked for"),
        "mass_scale": Parameter(1.0, 1.0, "", "masses and inertias, relative to the robot's"),
        "friction_scale": Parameter(1.0, 1.0, "", "coefficients of friction, relative to the model"),
        "gravity": Parameter(9.81, 9.81, "m/s^2", "downwards"),
    }

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        self.asked = torch.zeros(sim.num_envs, 3, dtype=torch.float64, device=sim.device)  # the score's own copy
        self.state["gravity_vec"].copy_(torch.tensor([0.0, 0.0, -1.0]))
        self.state["default_dof_pos"].copy_(torch.tensor(DEFAULT_POSITION))
        # One rotation serves the three vectors that are wanted in the base frame.
        self.world_vectors = sim.root_state.new_zeros(sim.num_envs, 3, 3)
        self.world_vectors[:, 2, 2] = -1.0
        self.base_vectors = torch.zeros_like(self.world_vectors)

    def views(self, buffer: Tensor) -> State:
        state = super().views(buffer)
        state["commands"] = state["goal"]
        return state

    def measure(self) -> None:
        state, sim = self.state, self.sim
        root = sim.root_state[:, 0]
        self.world_vectors[:, :2] = root[:, 7:].unflatten(1, (2, 3))
        self.base_vectors = rotate_inverse(root[:, None, 3:7], self.world_vectors)
        for i, name in enumerate(("base_lin_vel", "base_ang_vel", "projected_gravity")):
            state[name].copy_(self.base_vectors[:, i])
        state["root_states"].copy_(root)
        state["dof_pos"].copy_(sim.joint_position)
        state["dof_vel"].copy_(sim.joint_velocity)
        state["contact_forces"].copy_(sim.output(CONTACT_FORCE))

    def after_reset(self, ids: Tensor) -> None:
        self.asked[ids] = self.state["goal"][ids].double()

    def score(self) -> Tensor:
        linear, angular = self.base_vectors[:, 0], self.base_vectors[:, 1]
        return self._minus_error(linear[:, :2].double(), angular[:, 2].double())

    def score_after_end(self) -> Tensor:
        return self._minus_error(torch.zeros_like(self.asked[:, :2]), torch.zeros_like(self.asked[:, 2]))

    def _minus_error(self, velocity: Tensor, yaw_rate: Tensor) -> Tensor:
        return -((velocity - self.asked[:, :2]).norm(dim=1) + (yaw_rate - self.asked[:, 2]).abs())

    @staticmethod
    def compute_reward(state: State) -> Reward:
        error = state["goal"][:, :2] - state["base_lin_vel"][:, :2]
        error_yaw = state["goal"][:, 2] - state["base_ang_vel"][:, 2]
        components = {
            "linear": DT * 1.0 * torch.exp(-error.square().sum(1) / 0.25),
            "yaw": DT * 0.5 * torch.exp(-error_yaw.square() / 0.25),
            "torque": DT * -2.5e-5 * state["torque"].square().sum(1),
        }
        return sum(components.values()).clamp(min=0), components  # type: ignore[union-attr]

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        commands = state["goal"] * row((LINEAR_SCALE, LINEAR_SCALE, ANGULAR_SCALE), state["goal"])
        return torch.cat(
            (
                state["base_lin_vel"] * LINEAR_SCALE,
                state["base_ang_vel"] * ANGULAR_SCALE,
                state["projected_gravity"],
                commands,
                state["dof_pos"] - state["default_dof_pos"],
                state["dof_vel"] * VELOCITY_SCALE,
                state["action"],
            ),
            1,
        )

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        target = ACTION_SCALE * action + state["default_dof_pos"]
        torque = STIFFNESS * (target - state["dof_pos"]) - DAMPING * state["dof_vel"]
        return torque.clamp(-TORQUE_LIMIT, TORQUE_LIMIT)

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        force = state["contact_forces"][:, [BASE, *THIGHS]].norm(dim=2)
        return (force > CONTACT).any(1)

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        # Each angle is between half and one and a half of the standing pose's; each velocity within 0.1 rad/s.
        u = random.uniform[:, :24].double()
        default = rest.joint_position.new_tensor(DEFAULT_POSITION)
        return Pose(rest.root_state, default * (0.5 + u[:, :12]), 0.1 * (2 * u[:, 12:] - 1))

    @staticmethod
    def compute_goal(state: State, random: Random) -> Tensor:
        return torch.stack((state["command_x"], state["command_y"], state["command_yaw"]), 1)
