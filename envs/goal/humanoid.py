"""Humanoid in a physics engine: Gymnasium's robot (envs/models/humanoid.xml) walks to a point, as in JaxGCRL
(https://arxiv.org/abs/2408.11052)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envolve.envs.goal.simulated import SimulatedTask
from envolve.envs.goal.task import Random, register
from envolve.envs.sim.simulator import Simulator

REST = (0.0, 0.0, 1.4, 1.0) + 43 * (0.0,)  # the model's own pose, at rest
HEALTHY = (1.0, 2.0)  # m, the torso's height
DISTANCE = (1.0, 5.0)  # m, of goals from the start
GOAL_HEIGHT = 1.25  # m, about that of the torso when it stands
FEET = (("right_shin", "right_foot"), ("left_shin", "left_foot"))  # no joint between these


@register
class Humanoid(SimulatedTask):
    """Features: coordinates; of the 11 links between joints inertia and mass about the whole body's centre of mass (10
    numbers each; kg m^2, kg m, kg), then angular and linear velocity there (6 each; rad/s, m/s), world axes; torques of
    all coordinates, N m. All but the coordinates describe the state before the last substep, as in Gymnasium.

    JaxGCRL has 268, of them 22 of the target: there an agent finds the goal in its state. Here it does not."""

    name = "humanoid"
    model = "humanoid.xml"
    substeps = 5
    outputs = ("cinert", "cvel", "qfrc_actuator")
    dt = 0.015
    state_numbers = 47
    state_size = 24 + 23 + 11 * 10 + 11 * 6 + 23
    action_size = 17
    goal_indices = (0, 1, 2)
    threshold = 0.5

    def start(self, random: Random, members: Tensor) -> Tensor:
        return torch.tensor(REST, device=members.device).repeat(len(members), 1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        u = random.uniform(2)
        radius, angle = DISTANCE[0] + (DISTANCE[1] - DISTANCE[0]) * u[:, 0], 2 * math.pi * u[:, 1]
        x, y = radius * torch.cos(angle), radius * torch.sin(angle)
        return torch.stack((x, y, torch.full_like(x, GOAL_HEIGHT)), 1)

    def measure(self, sim: Simulator) -> Tensor:
        inertia, velocity = sim.output("cinert")[:, 1:].clone(), sim.output("cvel")[:, 1:]
        feet = []
        for shin, foot in FEET:
            feet.append(sim.body_index(foot))
            inertia[:, sim.body_index(shin)] += inertia[:, feet[-1]]  # about one point, so they add up
        links = [b for b in range(len(sim.bodies)) if b not in feet]
        parts = (inertia[:, links].flatten(1), velocity[:, links].flatten(1), sim.output("qfrc_actuator"))
        return torch.cat((super().measure(sim), *parts), 1)

    def terminated(self, state: Tensor) -> Tensor:
        z = state[..., 2]
        return (z < HEALTHY[0]) | (z > HEALTHY[1])
