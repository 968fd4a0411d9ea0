"""A hand of four fingers that turns a cube in its palm, after IsaacGymEnvs' AllegroHand
(https://github.com/isaac-sim/IsaacGymEnvs, isaacgymenvs/tasks/allegro_hand.py and cfg/task/AllegroHand.yaml).

Reward, observation, joints, targets, ranges are that task's. The palm faces straight up, control is at 50 Hz for 10 s,
there 30 Hz for 20 s, and the spring of a joint is computed once per control step, its damping by the engine.
"""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from envolve.envs.physics.common import row
from envolve.envs.physics.task import Parameter, PhysicsTask, Pose, Quantity, Random, Reward, State, register
from envolve.envs.sim.rotations import conjugate, multiply
from envolve.envs.sim.simulator import BODY_STATE, Simulator

# Joints: abduction, proximal, medial, distal of index, middle and ring finger; rotation and the same three of the thumb
LOWEST = (-0.47, -0.196, -0.174, -0.227) * 3 + (0.263, -0.105, -0.189, -0.162)  # rad
HIGHEST = (0.47, 1.61, 1.709, 1.618) * 3 + (1.396, 1.163, 1.644, 1.719)
CURLED = (0.0, 0.5, 0.5, 0.5) * 3 + (1.2, 0.5, 0.3, 0.4)  # rad, about which an episode begins
FINGERS = ("index", "middle", "ring", "thumb")
STIFFNESS = 3.0  # N m/rad
PALM = (0.0, 0.0, 0.55)  # m, where the middle of the cube is when it lies on the palm
DROP = 0.03  # m, above that the cube begins
TARGETS = 8  # that an episode has in store; after the last comes the first
REACHED = 0.1  # rad
FALLEN = 0.24  # m
VELOCITY_SCALE, TORQUE_SCALE = 0.2, 10.0  # in the observation


@register
class AllegroHand(PhysicsTask):
    """Score: by how much the cube was turned towards its targets, one after the other. A reached target counts what it
    was away, at most pi; a turn back is subtracted."""

    name = "AllegroHand"
    model = "allegro_hand.xml"
    substeps = 5  # 0.02 s
    max_steps = 500
    action_size = 16
    random_numbers = 24 + 2 * TARGETS
    outputs = (BODY_STATE,)
    score_unit = "rad per episode"
    score_meaning = "turn of the cube towards its targets; a target within 0.1 rad is reached, and the next one holds"
    goal_size = 4 * TARGETS
    goal_meaning = f"{TARGETS} quaternions (x, y, z, w), the targets in their order"
    quantities = {
        "joint_position": Quantity((16,), "rad", "index, middle, ring finger, thumb; each from the palm to the tip"),
        "joint_velocity": Quantity((16,), "rad/s", "same order"),
        "fingertip_position": Quantity((4, 3), "m", "index, middle, ring, thumb; world, before the last substep"),
        "object_position": Quantity((3,), "m", "of the middle of the cube, edge 0.065; world"),
        "object_rotation": Quantity((4,), "", "quaternion (x, y, z, w), cube to world"),
        "object_velocity": Quantity((3,), "m/s", "world"),
        "object_angular_velocity": Quantity((3,), "rad/s", "world"),
        "target_position": Quantity((3,), "m", "where the cube should stay, world; always (0, 0, 0.55)"),
        "target_rotation": Quantity((4,), "", "quaternion (x, y, z, w) that the cube should have"),
        "targets_reached": Quantity((), "", "how many targets were reached before this step"),
    }
    parameters = {
        "position_noise": Parameter(0.01, 0.01, "m", "the cube begins within +- this of the palm's middle, and above"),
        "joint_noise": Parameter(
            0.2, 0.2, "", "share of the way from the curled pose to a random one at which joints begin"
        ),
        "mass_scale": Parameter(1.0, 1.0, "", "masses and inertias, relative to the model"),
        "friction_scale": Parameter(1.0, 1.0, "", "coefficients of friction, relative to the model"),
        "gravity": Parameter(9.81, 9.81, "m/s^2", "downwards; not felt by the hand"),
    }

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        self.tips = [sim.body_index(f"{finger}_tip") for finger in FINGERS]
        self.state["target_position"].copy_(torch.tensor(PALM))
        # The score's own copies: what a candidate does to the state does not reach them.
        self.targets = sim.root_state.new_zeros(sim.num_envs, TARGETS, 4)
        self.targets[..., 3] = 1
        self.count = torch.zeros(sim.num_envs, dtype=torch.int64, device=sim.device)
        self.angle = sim.root_state.new_zeros(sim.num_envs)  # rad, from the target, now
        self.progress = torch.zeros_like(self.angle)  # rad, in the last step

    def measure(self) -> None:
        state, sim = self.state, self.sim
        cube = sim.root_state[:, 0]
        state["joint_position"].copy_(sim.joint_position)
        state["joint_velocity"].copy_(sim.joint_velocity)
        state["fingertip_position"].copy_(sim.output(BODY_STATE)[:, self.tips, :3])
        state["object_position"].copy_(cube[:, :3])
        state["object_rotation"].copy_(cube[:, 3:7])
        state["object_velocity"].copy_(cube[:, 7:10])
        state["object_angular_velocity"].copy_(cube[:, 10:])

    def before_step(self) -> None:
        """What was reached is replaced: a reward sees the target that was reached, as in IsaacGymEnvs."""
        self.count += self.angle <= REACHED
        self._aim()

    def after_step(self) -> None:
        before = self.angle
        self.angle = self._angle()
        self.progress = before - self.angle

    def after_reset(self, ids: Tensor) -> None:
        self.targets[ids] = self.state["goal"][ids].view(-1, TARGETS, 4).to(self.targets.dtype)
        self.count[ids] = 0
        self._aim()

    def _aim(self) -> None:
        self.target = self.targets[torch.arange(len(self.count), device=self.count.device), self.count % TARGETS]
        self.state["target_rotation"].copy_(self.target)
        self.state["targets_reached"].copy_(self.count)
        self.angle = self._angle()

    def _angle(self) -> Tensor:
        return _turn(self.sim.root_state[:, 0, 3:7], self.target)

    def score(self) -> Tensor:
        return self.max_steps * self.progress.double()

    @staticmethod
    def compute_reward(state: State) -> Reward:
        angle = _turn(state["object_rotation"], state["target_rotation"])
        components = {
            "distance": -10.0 * (state["object_position"] - state["target_position"]).norm(dim=1),
            "rotation": 1.0 / (angle + 0.1),
            "action": -0.0002 * state["action"].square().sum(1),
            "reached": 250.0 * (angle <= REACHED).to(angle.dtype),
        }
        total = components["distance"] + components["rotation"] + components["action"] + components["reached"]
        return total, components

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        """88: joints (their range is +-1), velocities, torques, the cube, its target, the turn that is left, the
        action."""
        lowest, highest = row(LOWEST, state["goal"]), row(HIGHEST, state["goal"])
        left = multiply(state["object_rotation"], conjugate(state["target_rotation"]))
        seen = (
            (2 * state["joint_position"] - lowest - highest) / (highest - lowest),
            VELOCITY_SCALE * state["joint_velocity"],
            TORQUE_SCALE * state["torque"],
            state["object_position"],
            state["object_rotation"],
            state["object_velocity"],
            VELOCITY_SCALE * state["object_angular_velocity"],
            state["target_position"],
            state["target_rotation"],
            left,
            state["action"],
        )
        return torch.cat(seen, 1)

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        """The action is the pose that is wanted: -1 and 1 are the ends of a joint's range."""
        lowest, highest = row(LOWEST, action), row(HIGHEST, action)
        wanted = 0.5 * (highest + lowest + (highest - lowest) * action.clamp(-1, 1))
        return STIFFNESS * (wanted - state["joint_position"])

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        """The cube has left the hand."""
        return (state["object_position"] - state["target_position"]).norm(dim=1) >= FALLEN

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        u = random.uniform.double()
        like = rest.joint_position
        curled, lowest, highest = like.new_tensor(CURLED), like.new_tensor(LOWEST), like.new_tensor(HIGHEST)
        drawn = lowest + (highest - lowest) * u[:, :16].to(like.dtype)
        joints = curled + state["joint_noise"].to(like.dtype)[:, None] * (drawn - curled)
        root = rest.root_state.clone()
        offset = (2 * u[:, 16:19] - 1) * state["position_noise"].double()[:, None]
        offset[:, 2] += DROP
        root[:, 0, :3] = root.new_tensor(PALM) + offset.to(root.dtype)
        root[:, 0, 3:7] = _random_rotation(u[:, 19:21]).to(root.dtype)
        return Pose(root, joints, rest.joint_velocity)

    @staticmethod
    def compute_goal(state: State, random: Random) -> Optional[Tensor]:
        drawn = random.uniform[:, 24:].view(-1, TARGETS, 2)
        return _random_rotation(drawn).flatten(1)


def _turn(rotation: Tensor, target: Tensor) -> Tensor:
    """Angle between two rotations, rad in [0, pi]. Quaternions [N, 4] -> [N]."""
    sine = multiply(rotation, conjugate(target))[:, :3].norm(dim=1)
    return 2 * torch.asin(sine.clamp(max=1))


def _random_rotation(uniform: Tensor) -> Tensor:
    """A turn about y and then about x, by +- pi each, as IsaacGymEnvs draws it. [..., 2] in [0, 1) -> [..., 4]."""
    half = torch.pi * (uniform - 0.5)
    (sx, sy), (cx, cy) = half.sin().unbind(-1), half.cos().unbind(-1)
    return torch.stack((sx * cy, cx * sy, sx * sy, cx * cy), -1)
