"""Pusher: an arm of seven joints brings a cylinder on a table to a goal. Gymnasium's robot (envs/models/pusher.xml),
told where to push as in JaxGCRL (https://arxiv.org/abs/2408.11052), but for three of its ways. Here the goal lies as
high as the object, not 0.05 m lower, where no object comes; an object always begins at least 0.17 m from the goal; and
success is judged by where the object is, not by where it was a decision before.

Coordinates: 7 joints, rad; the object's way along y and x from TABLE, m; the same of the model's mark of the goal,
which only shows where the goal is. Then their velocities.
"""

from __future__ import annotations

from typing import ClassVar, Tuple

import torch
from torch import Tensor

from envolve.envs.goal.simulated import SimulatedTask
from envolve.envs.goal.task import Random, register
from envolve.envs.sim.simulator import Simulator

TABLE = (0.45, -0.05, -0.275)  # m, where the object is in the model: x, y, z of its middle
OBJECT = ((-0.3, 0.0), (-0.2, 0.2))  # m, along y and x from TABLE: where it begins
NEAREST = 0.17  # m, from there to the goal
NOISE = 0.005  # rad/s either way, of the joints' velocities at first


def within(ranges: Tuple[Tuple[float, float], ...], random: Random) -> Tensor:
    """Uniform positions in a box, [K, its dimensions]."""
    low, high = torch.tensor(ranges, device=random.key.device).unbind(1)
    return low + (high - low) * random.uniform(len(ranges))


class Pusher(SimulatedTask):
    """Features: joints, the wrist's position between the fingers (m; before the last substep, as in Gymnasium), the
    object's, the joints' velocities."""

    model = "pusher.xml"
    substeps = 5
    outputs = ("xpos",)
    state_numbers = 22
    state_size = 20
    action_size = 7
    goal_indices = (10, 11, 12)
    threshold = 0.1
    start_indices = (7, 8)
    goals: ClassVar[Tuple[Tuple[float, float], ...]]  # m, along y and x from TABLE

    def start(self, random: Random, members: Tensor) -> Tensor:
        """With the goal, for an object begins away from it: the further end of the way from goal to object, at least
        NEAREST long."""
        goal, drawn = within(self.goals, random), within(OBJECT, random)
        away = drawn - goal
        distance = away.norm(dim=1, keepdim=True)
        there = torch.where(distance < NEAREST, goal + NEAREST / distance.clamp_min(1e-6) * away, drawn)
        velocity = NOISE * (2 * random.uniform(7) - 1)
        return torch.cat((torch.zeros_like(velocity), there, goal, velocity, torch.zeros_like(goal.repeat(1, 2))), 1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        return on_table(start[:, 9:11])

    def whereabouts(self, start: Tensor) -> Tensor:
        return on_table(start[:, 7:9])

    def measure(self, sim: Simulator) -> Tensor:
        q, v = sim.joint_position, sim.joint_velocity
        tip = sim.output("xpos")[:, 1 + sim.body_index("tips_arm")]
        return torch.cat((q[:, :7], tip, on_table(q[:, 7:9]), v[:, :7]), 1)


def on_table(slid: Tensor) -> Tensor:
    """Positions x, y, z, m, from the object's ways along y and x from TABLE."""
    x, y, z = TABLE
    return torch.stack((x + slid[:, 1], y + slid[:, 0], torch.full_like(slid[:, 0], z)), 1)


@register
class PusherEasy(Pusher):
    name = "pusher_easy"
    goals = ((-0.55, -0.25), (-0.2, 0.2))


@register
class PusherHard(Pusher):
    name = "pusher_hard"
    goals = ((-0.65, 0.35), (-0.55, 0.45))
