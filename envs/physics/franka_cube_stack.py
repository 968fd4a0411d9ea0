"""An arm that puts a small cube on a larger one, after IsaacGymEnvs' FrankaCubeStack
(https://github.com/isaac-sim/IsaacGymEnvs, isaacgymenvs/tasks/franka_cube_stack.py and cfg/task/FrankaCubeStack.yaml).

Cubes, places, ranges, reward, observation and time limit are that task's. It is controlled 62.5 times a second, there
60. The hand is moved by forces, J^T F (impedance control, Hogan 1985, https://doi.org/10.1115/1.3140702): the mass
matrix that operational-space control would need is not part of the state, so our gains are not that task's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.envs.physics.common import noise, row
from envolve.envs.physics.task import Parameter, PhysicsTask, Pose, Quantity, Random, Reward, State, register
from envolve.envs.sim.rotations import rotate
from envolve.envs.sim.simulator import BODY_STATE, Simulator

SIZE_A, SIZE_B = 0.05, 0.07  # m, edges
STACKED_HEIGHT = SIZE_B + SIZE_A / 2  # m, of the middle of cube A above the table
ARM = (0.0, 0.1963, 0.0, -2.6180, 0.0, 2.9416, 0.7854)  # rad, about which an episode begins
OPEN, BEGIN_OPEN = 0.04, 0.035  # m, of each finger: its range, and where it begins
LOWEST = (-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973)  # rad
HIGHEST = (2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973)
AXES = ((0, 0, 1), (0, 1, 0), (0, 0, 1), (0, -1, 0), (0, 0, 1), (0, -1, 0), (0, 0, -1))  # of the joints, link's frame
REACH = (0.1, 0.1, 0.1, 0.5, 0.5, 0.5)  # m and rad: how far from where it is an action of 1 asks the hand to be
STIFFNESS = (400.0, 400.0, 400.0, 30.0, 30.0, 30.0)  # N/m and N m/rad
DAMPING = (40.0, 40.0, 40.0, 3.0, 3.0, 3.0)  # N s/m and N m s/rad
GRIP = 1500.0  # N/m, of each finger
LIFTED, ALIGNED, AWAY = 0.04, 0.02, 0.04  # m
NEAREST = (SIZE_A + SIZE_B) * 2**0.5  # m, between the middles of the cubes when an episode begins
TRIES = 16  # draws of cube A's place; one is too near with probability 0.36 at most, all of them once in 10^7 episodes


@register
class FrankaCubeStack(PhysicsTask):
    """Score: 1 while cube A rests on cube B and the hand has let go, before that up to a half by how near it is."""

    name = "FrankaCubeStack"
    model = "franka_cube_stack.xml"
    substeps = 4  # 0.016 s
    max_steps = 300
    action_size = 7
    random_numbers = 16 + 2 * TRIES
    outputs = (BODY_STATE,)
    score_unit = ""
    score_meaning = (
        "1 while cube A lies on cube B and the hand is away; otherwise (1 - tanh(5 d)) / 2, d in m from cube A to its"
        " place on B"
    )
    quantities = {
        "joint_position": Quantity((7,), "rad", "of the arm, from the stand to the hand"),
        "joint_velocity": Quantity((7,), "rad/s", "of the arm"),
        "finger_position": Quantity((2,), "m", "left and right, 0 (closed) to 0.04 (open)"),
        "hand_position": Quantity((3,), "m", "of the point between the finger tips, world, before the last substep"),
        "hand_rotation": Quantity((4,), "", "quaternion (x, y, z, w), hand to world; the fingers open along its y"),
        "hand_velocity": Quantity((6,), "m/s, rad/s", "of that point, and angular; world, J times joint_velocity"),
        "left_finger_position": Quantity((3,), "m", "of the left finger's tip, world"),
        "right_finger_position": Quantity((3,), "m", "of the right finger's tip, world"),
        "jacobian": Quantity((6, 7), "m/rad, 1", "J: hand_velocity per joint_velocity"),
        "cube_a_position": Quantity((3,), "m", "of the middle of the small cube, edge 0.05; world, the table is z = 0"),
        "cube_a_rotation": Quantity((4,), "", "quaternion (x, y, z, w)"),
        "cube_b_position": Quantity((3,), "m", "of the middle of the large cube, edge 0.07"),
        "cube_b_rotation": Quantity((4,), "", "quaternion (x, y, z, w)"),
    }
    parameters = {
        "cube_range": Parameter(0.25, 0.25, "m", "the cubes begin within +- this of (0, 0)"),
        "cube_turn": Parameter(0.785, 0.785, "rad", "and turned about z by +- this"),
        "arm_range": Parameter(0.25, 0.25, "rad", "the arm's joints begin within +- this of the pose at rest"),
        "mass_scale": Parameter(1.0, 1.0, "", "masses and inertias, relative to the model"),
        "friction_scale": Parameter(1.0, 1.0, "", "coefficients of friction, relative to the model"),
        "gravity": Parameter(9.81, 9.81, "m/s^2", "downwards; not felt by the arm"),
    }

    def __init__(self, sim: Simulator) -> None:
        super().__init__(sim)
        self.links = [sim.body_index(f"link{i}") for i in range(1, 8)]
        self.hand, *self.fingers = (sim.body_index(name) for name in ("grip", "left_finger", "right_finger"))
        self.axes = sim.root_state.new_tensor(AXES)
        self.stacked = torch.zeros(sim.num_envs, dtype=torch.bool, device=sim.device)

    def measure(self) -> None:
        state, sim = self.state, self.sim
        bodies = sim.output(BODY_STATE)
        hand, links = bodies[:, self.hand], bodies[:, self.links]
        state["joint_position"].copy_(sim.joint_position[:, :7])
        state["joint_velocity"].copy_(sim.joint_velocity[:, :7])
        state["finger_position"].copy_(sim.joint_position[:, 7:])
        state["hand_position"].copy_(hand[:, :3])
        state["hand_rotation"].copy_(hand[:, 3:7])
        state["left_finger_position"].copy_(bodies[:, self.fingers[0], :3])
        state["right_finger_position"].copy_(bodies[:, self.fingers[1], :3])
        # Column i of J: a_i x (hand - link i), and a_i, with a_i the joint's axis in the world
        axes = rotate(links[:, :, 3:7], self.axes.expand(len(links), 7, 3))
        arms = hand[:, None, :3] - links[:, :, :3]
        jacobian = torch.cat((torch.linalg.cross(axes, arms), axes), 2).transpose(1, 2)
        state["jacobian"].copy_(jacobian)
        state["hand_velocity"].copy_((jacobian @ sim.joint_velocity[:, :7, None])[:, :, 0])
        for i, cube in enumerate(("cube_a", "cube_b")):
            state[f"{cube}_position"].copy_(sim.root_state[:, i, :3])
            state[f"{cube}_rotation"].copy_(sim.root_state[:, i, 3:7])
        a, b = sim.root_state[:, 0, :3], sim.root_state[:, 1, :3]
        self.from_place = _from_place(a, b)
        self.stacked = _stacked(a, b, hand[:, :3].to(a.dtype))

    def score(self) -> Tensor:
        near = 0.5 * (1 - torch.tanh(5 * self.from_place.norm(dim=1)))
        return torch.where(self.stacked, 1.0, near).double()

    def score_after_end(self) -> Tensor:
        """A stack stays one; a simulation that has diverged earns nothing more."""
        return self.stacked.double()

    @staticmethod
    def compute_reward(state: State) -> Reward:
        """IsaacGymEnvs': reaching, lifting and aligning, or stacking instead of all of them."""
        a, b, hand = state["cube_a_position"], state["cube_b_position"], state["hand_position"]
        distances = (a - hand).norm(dim=1)
        for finger in ("left_finger_position", "right_finger_position"):
            distances = distances + (a - state[finger]).norm(dim=1)
        reach = 1 - torch.tanh(10 * distances / 3)
        lifted = (a[:, 2] - SIZE_A > LIFTED).to(a.dtype)
        align = (1 - torch.tanh(10 * _from_place(a, b).norm(dim=1))) * lifted
        components = {"reach": 0.1 * torch.maximum(reach, align), "lift": 1.5 * lifted, "align": 2.0 * align}
        stacked = _stacked(a, b, hand)
        shaped = components["reach"] + components["lift"] + components["align"]
        components["stack"] = 16.0 * stacked.to(a.dtype)
        return torch.where(stacked, components["stack"], shaped), components

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        """19: cube A's rotation and position, the way from it to cube B, the hand's position and rotation, the
        fingers."""
        way = state["cube_b_position"] - state["cube_a_position"]
        names = ("hand_position", "hand_rotation", "finger_position")
        seen = [state["cube_a_rotation"], state["cube_a_position"], way, *(state[name] for name in names)]
        return torch.cat(seen, 1)

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        """Six numbers move and turn the hand, the seventh opens (>= 0) or closes the fingers."""
        # F = K dx - D v, effort = J^T F
        stiffness, damping, reach = (row(x, action) for x in (STIFFNESS, DAMPING, REACH))
        force = stiffness * reach * action[:, :6] - damping * state["hand_velocity"]
        arm = (state["jacobian"].transpose(1, 2) @ force[:, :, None])[:, :, 0]
        wanted = torch.where(action[:, 6:] >= 0, OPEN, 0.0)
        return torch.cat((arm, GRIP * (wanted - state["finger_position"])), 1)

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return _stacked(state["cube_a_position"], state["cube_b_position"], state["hand_position"])

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        """Cube B lies anywhere within its range, cube A too, but not near cube B."""
        u, root, joints = random.uniform, rest.root_state.clone(), rest.joint_position.clone()
        arm = rest.joint_position.new_tensor(ARM) + noise(u[:, :7], state["arm_range"])
        lowest, highest = joints.new_tensor(LOWEST), joints.new_tensor(HIGHEST)
        joints[:, :7] = torch.minimum(torch.maximum(arm, lowest), highest)
        joints[:, 7:] = BEGIN_OPEN
        turns = noise(u[:, 7:9], state["cube_turn"]) / 2  # half angles: the quaternion (0, 0, sin, cos)
        root[:, :2, 5], root[:, :2, 6] = turns.sin(), turns.cos()
        b = noise(u[:, 9:11], state["cube_range"])
        drawn = noise(u[:, 16:], state["cube_range"]).view(-1, TRIES, 2)
        far = (drawn - b[:, None]).norm(dim=2) > NEAREST
        first = far.int().argmax(1)  # of equals the first; where all are too near, the first of all
        root[:, 0, :2], root[:, 1, :2] = drawn[torch.arange(len(first), device=first.device), first], b
        root[:, 0, 2], root[:, 1, 2] = SIZE_A / 2, SIZE_B / 2
        return Pose(root, joints, rest.joint_velocity)


def _from_place(a: Tensor, b: Tensor) -> Tensor:
    """From cube A's place on top of cube B to where it is, m [N, 3]. a, b: the middles of the cubes."""
    return a - b - row((0.0, 0.0, (SIZE_A + SIZE_B) / 2), a).to(a.dtype)


def _stacked(a: Tensor, b: Tensor, hand: Tensor) -> Tensor:
    """Cube A is above the middle of cube B, at the height of a cube that lies on it, and the hand is away: bool [N]."""
    aligned = (a - b)[:, :2].norm(dim=1) < ALIGNED
    on = (a[:, 2] - STACKED_HEIGHT).abs() < ALIGNED
    return aligned & on & ((a - hand).norm(dim=1) > AWAY)
