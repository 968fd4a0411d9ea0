"""The arm of ``arm.py`` with a gripper, and a cube on its table: pushed to a goal, grasped, brought from one bin into
another. After JaxGCRL (https://arxiv.org/abs/2408.11052): sizes, places, goals and what counts as near are its;
gripper, masses and friction are our own, and so is that the arm touches the cube with every link.

Coordinates: the cube's position (m) and quaternion (w, x, y, z), 7 angles of the arm, how far each finger is from the
middle (m); then their velocities. The fifth action closes the gripper if it is above 0, and else opens it.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Tuple

import torch
from torch import Tensor

from envolve.envs.goal.arm import REST, Arm, angles
from envolve.envs.goal.task import Random, register
from envolve.envs.sim.simulator import BODY_STATE, Scene, Simulator

CUBE = 0.03  # m, half its side
TIP = 0.0075  # m, half the thickness of a finger
TURN = REST[6] - math.pi / 2  # rad, of the gripper in link7: it closes along x where the arm begins
OPEN = 0.05  # m, each finger from the middle; they begin at BEGUN
BEGUN = 0.04
GRIP = 400.0  # N/m: with the cube between its fingers each presses with 12 N
FORCE = 0.1  # times N in features
WALL = (0.005, 0.066)  # m, half the thickness of a bin's walls, and their height
PALM, TABLE = 1, 1  # bits: what the arm touches; walls are not among it, as in JaxGCRL
BINS = 2


class ArmAndCube(Arm):
    """Features: the cube's position; 7 angles; position and velocity of the last link's beginning (before the last
    substep); how far apart the fingers' middles are, m; the force that closes them (at first of a control of 0)."""

    outputs = (BODY_STATE, "actuator_force")
    state_numbers = 31
    state_size = 18
    action_size = 5
    goal_indices: ClassVar[Tuple[int, ...]] = (0, 1, 2)
    threshold = 0.1
    episode_length = 150
    begins: ClassVar[Tuple[float, float]]  # m, middle of where the cube begins
    spread: ClassVar[float]  # m, either way
    goals: ClassVar[Tuple[float, float]]  # the same of its goals
    goal_spread: ClassVar[float]
    bins: ClassVar[Tuple[Tuple[float, float, float], ...]] = ()  # m, their middle, and half a side to mid-wall

    def scene(self) -> Scene:
        def build(spec: Any) -> None:
            import mujoco

            add_gripper(spec)
            add_cube(spec, self.begins)
            for number, (x, y, half) in enumerate(self.bins):
                add_bin(spec, f"bin{number}", (x, y), half)
            # what is held slips by 0.1 mm/s, with MuJoCo's defaults by 3
            spec.option.cone, spec.option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 10

        return build

    def start(self, random: Random, members: Tensor) -> Tensor:
        middle = torch.tensor(self.begins, device=members.device)
        there = middle + self.spread * (2 * random.uniform(2) - 1)
        rest = torch.tensor((CUBE, 1.0, 0.0, 0.0, 0.0, *REST, BEGUN, BEGUN, *15 * (0.0,)), device=members.device)
        return torch.cat((there, rest.expand(len(members), -1)), 1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        middle = torch.tensor(self.goals, device=members.device)
        there = middle + self.goal_spread * (2 * random.uniform(2) - 1)
        return torch.cat((there, torch.full_like(there[:, :1], CUBE)), 1)

    def measure(self, sim: Simulator) -> Tensor:
        q = sim.joint_position
        apart = q[:, 7:8] + q[:, 8:9] + 2 * TIP
        return torch.cat((*self.arm_and_cube(sim), apart, self.force(sim)), 1)

    def arm_and_cube(self, sim: Simulator) -> Tuple[Tensor, ...]:
        end = sim.output(BODY_STATE)[:, sim.body_index("link7")]
        return sim.root_state[:, 0, :3], sim.joint_position[:, :7], end[:, :3], end[:, 7:10]

    def force(self, sim: Simulator) -> Tensor:
        """Gripper force; positive closes."""
        return -FORCE * sim.output("actuator_force")[:, -2:].mean(1, keepdim=True)

    def effort(self, action: Tensor, sim: Simulator) -> Tensor:
        """Target angles in rad [n, 7], and distances in m [n, 2]."""
        finger = torch.where(action[:, 4:] > 0, 0.0, OPEN)
        return torch.cat((angles(action[:, :4]), finger, finger), 1)


def add_gripper(spec: Any) -> None:
    """Two fingers under link7 that slide apart along its palm."""
    import mujoco

    hand = spec.body("link7").add_body(
        name="gripper", pos=[0, 0, -0.22], quat=[math.cos(TURN / 2), 0, 0, math.sin(TURN / 2)], gravcomp=1
    )
    for name, side in (("left_finger", 1), ("right_finger", -1)):
        finger = hand.add_body(name=name, pos=[side * TIP, 0, 0], gravcomp=1)
        finger.add_geom(
            name=name,
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=[TIP, 0.015, 0.0325],
            pos=[0, 0, 0.0175],
            mass=0.05,
            contype=PALM,
            conaffinity=0,
            condim=4,
            friction=[1.5, 0.02, 0.0001],
            priority=1,
            rgba=[0.2, 0.2, 0.2, 1],
        )
        finger.add_joint(
            name=name,
            type=mujoco.mjtJoint.mjJNT_SLIDE,
            axis=[side, 0, 0],
            limited=1,
            range=[0, OPEN],
            armature=0.1,
            damping=1,
        )
        motor = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.set_to_position(kp=GRIP, kv=20)


def add_cube(spec: Any, place: Tuple[float, float]) -> None:
    import mujoco

    body = spec.worldbody.add_body(name="cube", pos=[*place, CUBE])
    body.add_freejoint(name="cube")
    body.add_geom(
        name="cube",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=3 * [CUBE],
        density=1000,
        contype=TABLE | BINS,
        conaffinity=PALM,
        condim=3,
        friction=[1, 0.005, 0.0001],
        rgba=[0.1, 0.5, 0.1, 1],
    )


def add_bin(spec: Any, name: str, place: Tuple[float, float], half: float) -> None:
    """Four walls; the arm does not touch them."""
    import mujoco

    thick, height = WALL
    for number, (x, y) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1))):
        size = [thick if x else half + thick, thick if y else half - thick, height / 2]
        spec.worldbody.add_geom(
            name=f"{name}_{number}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            contype=0,
            conaffinity=BINS,
            size=size,
            pos=[place[0] + x * half, place[1] + y * half, height / 2],
            rgba=[0.2, 0.4, 0.8, 0.6],
        )


@register
class ArmPushEasy(ArmAndCube):
    name = "arm_push_easy"
    begins, spread = (-0.1, 0.6), 0.1
    goals, goal_spread = (0.1, 0.6), 0.1


@register
class ArmPushHard(ArmAndCube):
    name = "arm_push_hard"
    begins, spread = (-0.25, 0.65), 0.25
    goals, goal_spread = (0.25, 0.65), 0.25


@register
class ArmBinpickEasy(ArmAndCube):
    name = "arm_binpick_easy"
    begins, spread = (-0.15, 0.6), 0.07
    goals, goal_spread = (0.17, 0.6), 0.005
    bins = (-0.17, 0.6, 0.14), (0.17, 0.6, 0.14)


@register
class ArmBinpickHard(ArmAndCube):
    name = "arm_binpick_hard"
    begins, spread = (-0.3, 0.6), 0.15
    goals, goal_spread = (0.3, 0.6), 0.15
    bins = (-0.3, 0.6, 0.19), (0.3, 0.6, 0.19)


@register
class ArmGrasp(ArmAndCube):
    """The goal: where both fingers are to be, either side of the cube along x, and how far apart (m). It goes with the
    cube. Near: the middle between the fingers is within MIDDLE of the goal's, and they are APART from it at most: open
    and closed without the cube are both further off.

    Features: as the others', but for both fingers' positions (before the last substep) before how far apart they are.
    """

    name = "arm_grasp"
    state_size = 24
    goal_indices = (16, 17, 18, 19, 20, 21, 22)
    threshold = MIDDLE = 0.05  # m, between the middles
    APART = 0.02  # m
    HELD = 0.075  # m, between the fingers' middles with the cube in between
    episode_length = 100
    begins, spread = (0.0, 0.6), 0.3
    goal_moves = True
    goals_shaped = False

    def beside(self, cube: Tensor) -> Tensor:
        """Goals [.., 7] for cube positions [.., 3]."""
        side = cube.new_tensor((self.HELD / 2, 0.0, 0.0))
        return torch.cat((cube + side, cube - side, torch.full_like(cube[..., :1], self.HELD)), -1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        return self.beside(start[:, :3])

    def goal_now(self, features: Tensor) -> Tensor:
        return self.beside(features[..., :3])

    def distance(self, features: Tensor, goal: Tensor) -> Tensor:
        """Distance of the fingers' middles, m."""
        here = self.achieved(features)
        return ((here[..., :3] + here[..., 3:6] - goal[..., :3] - goal[..., 3:6]) / 2).square().sum(-1).sqrt()

    def success(self, features: Tensor, goal: Tensor) -> Tensor:
        apart = (self.achieved(features)[..., 6] - goal[..., 6]).abs()
        return (self.distance(features, goal) < self.MIDDLE) & (apart < self.APART)

    def measure(self, sim: Simulator) -> Tensor:
        bodies = sim.output(BODY_STATE)
        left, right = (bodies[:, sim.body_index(name), :3] for name in ("left_finger", "right_finger"))
        apart = (left - right).norm(dim=1, keepdim=True)
        return torch.cat((*self.arm_and_cube(sim), left, right, apart, self.force(sim)), 1)
