"""Reacher in plain torch: an arm of two links brings its fingertip to a point of the plane. The arm of Gymnasium's
Reacher (https://gymnasium.farama.org/environments/mujoco/reacher/), envs/models/reacher.xml.

With joints q, torques tau and the inertia M(q) of the links (capsules and the fingertip's ball, 1000 kg/m^3) and of the
motors (1 kg m^2 each), two substeps of h = 0.01 s make a step, damping taken implicitly, as MuJoCo's Euler method does:
    (M + h D) q'' = tau - C(q, q') - D q',   q' += h q'',   q += h q'
The elbow stops dead at +-3 rad, where MuJoCo has a stiff spring.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from envolve.envs.goal.task import GoalTask, Random, register

GEAR = 200.0  # N m, of an action of 1
ARMATURE = 1.0  # kg m^2
DAMPING = 1.0  # N m s/rad
ELBOW_LIMIT = 3.0  # rad
SUBSTEPS, H = 2, 0.01
UPPER, TIP = 0.1, 0.11  # m, shoulder to elbow, elbow to fingertip
LENGTH, RADIUS, DENSITY = 0.1, 0.01, 1000.0  # of a capsule between the centres of its ends, m, m, kg/m^3
HEIGHT = 0.01  # m, of the plane in which the fingertip moves
TARGET_RADIUS = 0.2  # m
NOISE = 0.1  # rad either way, of the joints at first; a twentieth of it per s, of their velocities

_BALL = DENSITY * 4 / 3 * math.pi * RADIUS**3  # kg: the two ends of a capsule, or the fingertip
_ROD = DENSITY * math.pi * RADIUS**2 * LENGTH  # kg
# of a capsule about an axis across its middle: rod, then two half balls, whose centres are 3/8 r beyond its ends
_CAPSULE_INERTIA = _ROD * (3 * RADIUS**2 + LENGTH**2) / 12 + _BALL * (
    0.4 * RADIUS**2 + LENGTH * (3 * RADIUS + 2 * LENGTH) / 8
)
_LINK = _ROD + _BALL  # kg
SHOULDER_INERTIA = _CAPSULE_INERTIA + _LINK * (LENGTH / 2) ** 2  # kg m^2, of the first link about the shoulder
FOREARM = _LINK + _BALL  # kg
FOREARM_MOMENT = _LINK * LENGTH / 2 + _BALL * TIP  # kg m, mass times distance from the elbow
ELBOW_INERTIA = _CAPSULE_INERTIA + _LINK * (LENGTH / 2) ** 2 + _BALL * (0.4 * RADIUS**2 + TIP**2)  # about the elbow


@register
class Reacher(GoalTask):
    """State: angles of shoulder and elbow, rad, their velocities, rad/s. Features: cosines and sines of the angles,
    position of the fingertip, m, and its velocity, m/s. Goal: a position; half of the goals lie within half the
    largest distance from the shoulder, r = 0.2 u, as in JaxGCRL."""

    name = "reacher"
    state_numbers = 4
    state_size = 10
    action_size = 2
    goal_indices = (4, 5, 6)
    threshold = 0.05
    dt = SUBSTEPS * H

    def start(self, random: Random, members: Tensor) -> Tensor:
        noise = NOISE * (2 * random.uniform(4) - 1)
        return torch.cat((noise[:, :2], noise[:, 2:] / 20), 1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        u = random.uniform(2)
        radius, angle = TARGET_RADIUS * u[:, 0], 2 * math.pi * u[:, 1]
        x, y = radius * torch.cos(angle), radius * torch.sin(angle)
        return torch.stack((x, y, torch.full_like(x, HEIGHT)), 1)

    def features(self, state: Tensor) -> Tensor:
        angle, velocity = state.split(2, -1)
        both = angle.sum(-1)
        turned = velocity.sum(-1)
        q1, (v1, _) = angle[..., 0], velocity.unbind(-1)
        along, up = UPPER * torch.cos(q1), UPPER * torch.sin(q1)
        along2, up2 = TIP * torch.cos(both), TIP * torch.sin(both)
        still = torch.zeros_like(q1)
        tip = (along + along2, up + up2, still + HEIGHT)
        tip_velocity = (-up * v1 - up2 * turned, along * v1 + along2 * turned, still)
        return torch.cat((torch.cos(angle), torch.sin(angle), torch.stack(tip + tip_velocity, -1)), -1)

    def dynamics(self, state: Tensor, action: Tensor) -> Tensor:
        q1, q2, v1, v2 = state.unbind(-1)
        tau1, tau2 = (GEAR * action).unbind(-1)
        own2 = ELBOW_INERTIA + ARMATURE + H * DAMPING
        for _ in range(SUBSTEPS):
            couple, twist = UPPER * FOREARM_MOMENT * torch.cos(q2), UPPER * FOREARM_MOMENT * torch.sin(q2)
            own1 = SHOULDER_INERTIA + ELBOW_INERTIA + FOREARM * UPPER**2 + ARMATURE + H * DAMPING + 2 * couple
            both = ELBOW_INERTIA + couple
            f1 = tau1 + twist * (2 * v1 + v2) * v2 - DAMPING * v1
            f2 = tau2 - twist * v1 * v1 - DAMPING * v2
            determinant = own1 * own2 - both * both
            v1 = v1 + H * (own2 * f1 - both * f2) / determinant
            v2 = v2 + H * (own1 * f2 - both * f1) / determinant
            q1, q2 = q1 + H * v1, q2 + H * v2
            v2 = torch.where(q2.abs() > ELBOW_LIMIT, torch.zeros_like(v2), v2)
            q2 = q2.clamp(-ELBOW_LIMIT, ELBOW_LIMIT)
        return torch.stack((q1, q2, v1, v2), -1)
