"""Reacher: an arm of two links brings its fingertip to a target in the plane. Gymnasium's Reacher-v5, step for step
(https://gymnasium.farama.org/environments/mujoco/reacher/)."""

from __future__ import annotations

import math
from typing import Optional

import torch
from torch import Tensor

from envolve.envs.physics.common import noise, parameters
from envolve.envs.physics.task import PhysicsTask, Pose, Quantity, Random, Reward, State, register
from envolve.envs.sim.simulator import BODY_STATE

GEAR = 200.0  # N m, the largest torque
LINK = (0.1, 0.11)  # m, to the elbow, and from there to the fingertip
TARGET_RADIUS = 0.2  # m


@register
class Reacher(PhysicsTask):
    """Score: how near the fingertip was to the target. The goal is where the target lies, and the model's target is
    put there."""

    name = "Reacher"
    model = "reacher.xml"
    substeps = 2  # 0.02 s
    max_steps = 50
    action_size = 2
    outputs = (BODY_STATE,)
    score_unit = "m"
    score_meaning = "minus the mean distance from the fingertip to the target"
    goal_size = 2
    goal_meaning = "m, x and y of the target, world; within 0.2 m of the shoulder"
    quantities = {
        "joint_position": Quantity((2,), "rad", "shoulder, 0 along x; elbow, 0 stretched"),
        "joint_velocity": Quantity((2,), "rad/s", "shoulder, elbow"),
        "fingertip_position": Quantity(
            (2,), "m", "x and y, world; at the end of the step but for the integrator's error"
        ),
    }
    parameters = parameters(
        0.1, "rad", "joints begin within +- this, their velocities within a twentieth of it (per s)"
    )

    def measure(self) -> None:
        state, sim = self.state, self.sim
        state["joint_position"].copy_(sim.joint_position[:, :2])
        state["joint_velocity"].copy_(sim.joint_velocity[:, :2])
        fingertip = sim.body_index("fingertip")
        state["fingertip_position"].copy_(sim.output(BODY_STATE)[:, fingertip, :2])

    def score(self) -> Tensor:
        q = self.sim.joint_position.double()
        shoulder, both = q[:, 0], q[:, 0] + q[:, 1]
        x = LINK[0] * torch.cos(shoulder) + LINK[1] * torch.cos(both)
        y = LINK[0] * torch.sin(shoulder) + LINK[1] * torch.sin(both)
        return -torch.hypot(x - q[:, 2], y - q[:, 3])

    def score_after_end(self) -> Tensor:
        """Only a simulation that diverges ends early: as if it were as far away as can be."""
        return torch.full_like(self.score(), -(sum(LINK) + TARGET_RADIUS))

    def place(self, pose: Pose, goal: Optional[Tensor]) -> Pose:
        assert goal is not None  # compute_goal says so
        joints, velocity = pose.joint_position.clone(), pose.joint_velocity.clone()
        joints[:, 2:] = goal  # slides, whose positions are the target's
        velocity[:, 2:] = 0
        return Pose(pose.root_state, joints, velocity)

    @staticmethod
    def compute_reward(state: State) -> Reward:
        control = state["torque"] / GEAR
        components = {
            "distance": -(state["fingertip_position"] - state["goal"]).norm(dim=1),
            "control": -control.square().sum(1),
        }
        return components["distance"] + components["control"], components

    @staticmethod
    def compute_observation(state: State) -> Tensor:
        """10: cosines and sines of the joints, target, velocities of the joints, from the target to the fingertip."""
        angle, goal = state["joint_position"], state["goal"]
        return torch.cat(
            (torch.cos(angle), torch.sin(angle), goal, state["joint_velocity"], state["fingertip_position"] - goal), 1
        )

    @staticmethod
    def compute_torque(action: Tensor, state: State) -> Tensor:
        return action.clamp(-1, 1) * GEAR

    @staticmethod
    def compute_terminal(state: State) -> Tensor:
        return torch.zeros(len(state["goal"]), dtype=torch.bool, device=state["goal"].device)

    @staticmethod
    def compute_initial_state(state: State, random: Random, rest: Pose) -> Pose:
        u = random.uniform
        joints, velocity = rest.joint_position.clone(), rest.joint_velocity.clone()
        joints[:, :2] += noise(u[:, :2], state["reset_noise"])
        velocity[:, :2] += noise(u[:, 2:4], state["reset_noise"] / 20)
        return Pose(rest.root_state, joints, velocity)

    @staticmethod
    def compute_goal(state: State, random: Random) -> Tensor:
        # uniform in the disc: Gymnasium draws in the square until it hits the disc
        radius, angle = TARGET_RADIUS * random.uniform[:, 0].sqrt(), 2 * math.pi * random.uniform[:, 1]
        return torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), 1)
