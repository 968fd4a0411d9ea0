"""Ant and half cheetah in a physics engine: Gymnasium's robots (envs/models) with a position as goal."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from envolve.envs.goal.simulated import SimulatedTask
from envolve.envs.goal.task import Random, register
from envolve.envs.sim.simulator import Scene

NOISE = 0.1  # of the coordinates at first: m and rad either way; deviation of the velocities, m/s and rad/s
ANT_REST = (0.0, 0.0, 0.55, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0)  # xyz, quaternion, joints
HEALTHY = (0.2, 1.0)  # m, the ant's height
LINK = 1.0  # kg, and kg m^2 about any axis: each of the ant's nine links
TIMESTEP = 0.005  # s, the ant's: 0.01 throws such links up


def spring_ant(spec: Any) -> None:
    """Makes Gymnasium's ant (a mujoco.MjSpec) the one that JaxGCRL trains: it walks in Brax's engine "spring", which
    takes every link for 1 kg and 1 kg m^2 (``spring_mass_scale``, ``spring_inertia_scale`` of Brax's ant.xml) and knows
    no armature. Links of 0.04 to 0.5 kg whose joints have the armature of 1 kg m^2 hardly leave the spot by chance, so
    there is nothing to learn from: docs/goals.md, "The ant"."""
    import mujoco

    spec.option.timestep = TIMESTEP
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_AUTO
    for body in spec.bodies[1:]:
        link = LINK if body.joints else 0.0  # what is welded to the torso is a part of it
        body.explicitinertial, body.mass, body.inertia = True, link, [link] * 3
        ends = body.geoms[0].fromto  # of a leg's capsule, x1 y1 z1 x2 y2 z2; the torso is a sphere
        body.ipos = [0.0] * 3 if math.isnan(ends[0]) else [(a + b) / 2 for a, b in zip(ends[:3], ends[3:])]
    for joint in spec.joints:
        joint.armature = 0.0


def noisy(rest: Tensor, velocities: int, random: Random) -> Tensor:
    """Random coordinates [K, Q + velocities] around rest: [Q]."""
    position = rest + NOISE * (2 * random.uniform(len(rest)) - 1)
    return torch.cat((position, NOISE * random.normal(velocities)), 1)


def one_of_two(total: Tensor, random: Random) -> Tensor:
    """Splits a sum u + v of two points on the unit circle, each at any angle, [K, 2], into u or v with equal
    probability, which cannot be distinguished. With d = |u + v|, either is acos(d / 2) off its direction; of a sum
    above 2, both lie in it."""
    way = torch.acos((total.norm(dim=1) / 2).clamp_max(1.0))
    angle = torch.atan2(total[:, 1], total[:, 0]) + torch.where(random.uniform(1)[:, 0] < 0.5, way, -way)
    return torch.stack((torch.cos(angle), torch.sin(angle)), 1)


@register
class Ant(SimulatedTask):
    """A torso on four legs of two joints walks to a point 10 m away. It is over when it falls or jumps."""

    name = "ant"
    model = "ant.xml"
    substeps = 10
    state_numbers = state_size = 29
    action_size = 8
    goal_indices = (0, 1)
    threshold = 0.5
    radius = 10.0  # m

    def scene(self) -> Scene:
        return spring_ant

    def start(self, random: Random, members: Tensor) -> Tensor:
        return noisy(torch.tensor(ANT_REST, device=members.device), 14, random)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        angle = 2 * math.pi * random.uniform(1)
        return self.radius * torch.cat((torch.cos(angle), torch.sin(angle)), 1)

    def terminated(self, state: Tensor) -> Tensor:
        z = state[..., 2]
        return (z < HEALTHY[0]) | (z > HEALTHY[1])


@register
class AntRandomStart(Ant):
    """The start is 10 m from the goal, the goal from the origin: s = 10 (u + v), g = 10 u, as in ``one_of_two``."""

    name = "ant_random_start"

    def start(self, random: Random, members: Tensor) -> Tensor:
        start, angle = super().start(random, members), 2 * math.pi * random.uniform(2)
        at = self.radius * torch.stack((torch.cos(angle).sum(1), torch.sin(angle).sum(1)), 1)
        return torch.cat((at, start[:, 2:]), 1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        return self.radius * one_of_two(start[:, :2] / self.radius, random)


@register
class Cheetah(SimulatedTask):
    """A planar robot with two legs runs to x = 5 m."""

    name = "cheetah"
    model = "half_cheetah.xml"
    substeps = 5
    state_numbers = state_size = 18
    action_size = 6
    goal_indices = (0,)
    threshold = 0.5
    target = 5.0  # m

    def start(self, random: Random, members: Tensor) -> Tensor:
        return noisy(torch.zeros(9, device=members.device), 9, random)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        return torch.full((len(members), 1), self.target, device=members.device)
