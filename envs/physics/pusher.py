"""Pusher: an arm of seven joints pushes a cylinder over a table to a goal. Gymnasium's Pusher-v5, step for step
(https://gymnasium.farama.org/environments/mujoco/pusher/)."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from envolve.envs.physics.common import noise, parameters, row
from envolve.envs.physics.task import PhysicsTask, Pose, Quantity, Random, Reward, State, register
from envolve.envs.sim.simulator import BODY_STATE

EFFORT = 2.0  # N m, the largest torque
TABLE = (0.45, -0.05)  # m, x and y of object and goal where their slides are 0
GOAL_HEIGHT = -0.323  # m
NEAREST = 0.17  # m, from the object's first position to the goal
TRIES = 16  # draws of that position; each is far enough with probability 0.62, so none is once in 5 million episodes
ARM = "shoulder pan and lift, upper arm roll, elbow flex, forearm roll, wrist flex and roll"
FAR = 1.0  # m, about the arm's reach


@register
class Pusher(PhysicsTask):
    """Score: how near the object was to the goal. The model's goal is put where the goal says."""

    name = "Pusher"
    model = "pusher.xml"
    substeps = 5  # 0.05 s
    max_steps = 100
    action_size = 7
    random_numbers = 7 + 2 * TRIES
    outputs = (BODY_STATE,)
    score_unit = "m"
    score_meaning = "minus the mean distance in the table's plane from the object to the goal"
    goal_size = 2
    goal_meaning = "m, x and y of the goal, world; always (0.45, -0.05)"
    quantities = {
        "joint_position": Quantity((7,), "rad", ARM),
        "joint_velocity": Quantity((7,), "rad/s", ARM),
        "tip_position": Quantity((3,), "m", "of the wrist, between the fingers; world, before the last substep"),
        "object_position": Quantity((3,), "m", "of the object's middle; world, before the last substep"),
        "object_velocity": Quantity((2,), "m/s", "x and y, world"),
    }
    parameters = parameters(0.005, "rad/s", "the joints' velocities begin within +- this", gravity=0.0)

    def measure(self) -> None:
        state, sim = self.state, self.sim
        state["joint_position"].copy_(sim.joint_position[:, :7])
        state["joint_velocity"].copy_(sim.joint_velocity[:, :7])
        bodies = sim.output(BODY_STATE)
        state["tip_position"].copy_(bodies[:, sim.body_index("tips_arm"), :3])
        state["object_position"].copy_(bodies[:, sim.body_index("object"), :3])
        state["object_velocity"].copy_(sim.joint_velocity[:, 7:9].flip(1))

    def score(self) -> Tensor:
        q = self.sim.joint_position.double()  # 7 and 8: the object's y and x, 9 and 10: the goal's
        return -torch.hypot(q[:, 8] - q[:, 10], q[:, 7] - q[:, 9])

    def score_after_end(self) -> Tensor:
        """Only a simulation that diverges ends early: as if the object were out of reach."""
        return torch.full_like(self.score(), -FAR)

    def place(self, pose: Pose, goal: Optional[Tensor]) -> Pose:
        assert goal is not None  # compute_goal says so
        joints, velocity = pose.joint_position.clone(), pose.joint_velocity.clone()
        joints[:, 9:] = (goal.double() - row(TABLE, goal)).flip(1)
        velocity[:, 9:] = 0
        return Pose(pose.root_state, joints, velocity)

    @staticmethod
    def compute_reward(state: State) -> Reward:
        near = (state["object_position"] - state["tip_position"]).norm(dim=1)
        components = {
            "distance": -(state["object_position"] - _goal(state)).norm(dim=1),
            "control": -0.1 * state["torque"].square().sum(1),
            "near": -0.5 * near,
        }
        return components["distance"] + components["control"] + components["near"], components

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        """23: positions and velocities of the joints, positions of wrist, object, goal."""
        names = ("joint_position", "joint_velocity", "tip_position", "object_position")
        return torch.cat([state[name] for name in names] + [_goal(state)], 1)

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        return action.clamp(-1, 1) * EFFORT

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return torch.zeros(len(state["goal"]), dtype=torch.bool, device=state["goal"].device)

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        """The object lies uniformly in x: +-0.2, y: -0.3 to 0 about TABLE, but not near the goal."""
        joints, velocity = rest.joint_position.clone(), rest.joint_velocity.clone()
        velocity[:, :7] += noise(random.uniform[:, :7], state["reset_noise"])
        u = random.uniform[:, 7:].double().view(-1, TRIES, 2)
        drawn = torch.stack((-0.3 * u[:, :, 0], 0.4 * u[:, :, 1] - 0.2), 2)  # slides: y, x
        goal = (state["goal"].double() - row(TABLE, state["goal"])).flip(1)
        far = (drawn - goal[:, None]).norm(dim=2) > NEAREST
        first = far.int().argmax(1)  # of equals the first; where all are too near, the first of all
        joints[:, 7:9] = drawn[torch.arange(len(first), device=first.device), first]
        return Pose(rest.root_state, joints, velocity)

    @staticmethod
    def compute_goal(state: State, random: Random) -> Tensor:
        return row(TABLE, random.uniform).expand(len(random.uniform), 2)


def _goal(state: State) -> Tensor:
    """The goal as a point, m [N, 3]."""
    goal = state["goal"]
    return torch.cat((goal, torch.full_like(goal[:, :1], GOAL_HEIGHT)), 1)
