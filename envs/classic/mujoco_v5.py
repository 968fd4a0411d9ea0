"""Gymnasium's robots of the v5 series, each of which steps exactly as Gymnasium's
(https://gymnasium.farama.org/environments/mujoco/): Swimmer, Hopper, HalfCheetah, Walker2d and Reacher.

``Runner`` has the rules that all but Reacher share, and a class of each robot has its numbers: a step pays the mean
forward velocity, plus 1 while the robot is healthy (of robots that can fall, whose episode ends when they are not),
minus a cost of the action as it was given, not as it was clipped.
"""

from __future__ import annotations

import math
from typing import ClassVar, List, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.envs.classic.half_cheetah import HalfCheetah
from envolve.envs.classic.mujoco_task import MuJoCoTask
from envolve.envs.task import register

INF = math.inf


class Robot(MuJoCoTask):
    """State: nq positions, nv velocities, nv accelerations, then ``outputs`` (``envs/classic/mujoco_task.py``)."""

    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0
    control_cost: ClassVar[float] = 0.0
    default_max_steps = 1000

    def cost_of(self, action: Tensor) -> Tensor:
        """Control cost, in float32 and in the order of numpy's sum, as Gymnasium's. action: [P, N, A] -> [P, N]."""
        squares = np.square(action.detach().cpu().numpy()).sum(-1)
        return self.control_cost * torch.from_numpy(squares).to(action.device)

    def observation_bounds(self) -> Tuple[List[float], List[float]]:
        return [-INF] * self.observation_size, [INF] * self.observation_size


class Runner(Robot):
    """Observation: the positions but for the first ``hidden``, then the velocities within +- ``fastest``. A reset reads
    nq + nv uniforms."""

    hidden: ClassVar[int] = 1
    noise: ClassVar[float] = 0.005  # m or rad, and per s: positions and velocities begin within +- this
    fastest: ClassVar[float] = INF  # m/s or rad/s
    can_fall: ClassVar[bool] = True

    def reset(self, u: Tensor) -> Tensor:
        """Start state. u: [P, N, reset_uniforms] -> float64 [P, N, S]."""
        u = u.to(torch.float64)
        return self.begin(*(self.noise * (2 * u - 1)).split((self.nq, self.nv), -1))

    def observe(self, state: Tensor) -> Tensor:
        velocity = state[..., self.nq : self.nq + self.nv].clamp(-self.fastest, self.fastest)
        return torch.cat((state[..., self.hidden : self.nq], velocity), -1).to(torch.float32)

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        next_state, diverged = self.advance(state, action)
        reward = (next_state[..., 0] - state[..., 0]) / self.dt
        ended = diverged
        if self.can_fall:
            healthy = self.healthy(next_state)
            reward, ended = reward + healthy, diverged | ~healthy
        return next_state, (reward - self.cost_of(action)).to(torch.float32), ended

    def healthy(self, state: Tensor) -> Tensor:
        """Whether the robot has not fallen, bool [P, N]."""
        raise NotImplementedError(f"{self.name} cannot fall")


def within(x: Tensor, low: float, high: float) -> Tensor:
    """Whether x lies between the limits, which do not belong to the range; NaN does not."""
    return (x > low) & (x < high)


@register
class Swimmer(Runner):
    """Three links swim in a plane. Positions: x, y (m), the first link's angle, two joints (rad). 2 motors."""

    name = gymnasium = "Swimmer-v5"
    model = "swimmer.xml"
    substeps, dt = 4, 0.04
    nq = nv = 5
    hidden, observation_size, action_size, reset_uniforms = 2, 8, 2, 10
    control_cost, noise, can_fall = 1e-4, 0.1, False
    default_solved_reward = 360.0


@register
class Hopper(Runner):
    """One leg hops. Positions: x, z (m), the torso's pitch, thigh, leg, foot (rad). 3 motors. Healthy: z above 0.7,
    pitch within +-0.2, all but x and z within +-100."""

    name = gymnasium = "Hopper-v5"
    model = "hopper.xml"
    substeps, dt = 4, 0.008
    nq = nv = 6
    observation_size, action_size, reset_uniforms = 11, 3, 12
    control_cost, fastest = 1e-3, 10.0
    default_solved_reward = 3800.0

    def healthy(self, state: Tensor) -> Tensor:
        upright = within(state[..., 1], 0.7, INF) & within(state[..., 2], -0.2, 0.2)
        return upright & within(state[..., 2 : self.nq + self.nv], -100, 100).all(-1)


@register
class Walker2d(Runner):
    """Two legs walk. Positions: x, z (m), the torso's pitch, thigh, leg, foot of both legs (rad). 6 motors. Healthy: z
    between 0.8 and 2, pitch within +-1. Gymnasium names no return that counts as solved; here it is 4,000."""

    name = gymnasium = "Walker2d-v5"
    model = "walker2d.xml"
    substeps, dt = 4, 0.008
    nq = nv = 9
    observation_size, action_size, reset_uniforms = 17, 6, 18
    control_cost, fastest = 1e-3, 10.0
    default_solved_reward = 4000.0

    def healthy(self, state: Tensor) -> Tensor:
        return within(state[..., 1], 0.8, 2.0) & within(state[..., 2], -1.0, 1.0)


@register
class HalfCheetahV5(HalfCheetah):
    """HalfCheetah-v3, which is the same, by the name of today."""

    name = gymnasium = "HalfCheetah-v5"
    info_names = ()
    default_solved_reward = 4800.0


@register
class Reacher(Robot):
    """An arm of two links points at a target. Positions: two joints (rad), the target's x and y (m). 2 motors.

    Observation: cosines and sines of the joints, the target, the joints' velocities, and from the target to the
    fingertip (m), as MuJoCo had it before the last substep. A step pays minus that distance, minus |action|^2.

    A reset reads 6 uniforms: joints within +-0.1 rad, their velocities within +-0.005 rad/s, and the target uniform on
    a disc of 0.2 m (Gymnasium draws in a square until the point is in the disc).
    """

    name = gymnasium = "Reacher-v5"
    model = "reacher.xml"
    outputs = ("xpos",)
    substeps, dt = 2, 0.02
    nq = nv = 4
    observation_size, action_size, reset_uniforms = 10, 2, 6
    control_cost = 1.0
    default_max_steps, default_solved_reward = 50, -3.75
    FINGERTIP, TARGET = 3, 4  # bodies
    REST = (0.1, -0.1)  # m, where the model has the target

    def reset(self, u: Tensor) -> Tensor:
        """u: [P, N, 6] -> float64 [P, N, S]."""
        u = u.to(torch.float64)
        radius, angle = 0.2 * u[..., 2].sqrt(), 2 * math.pi * u[..., 3]
        target = radius * torch.cos(angle) - self.REST[0], radius * torch.sin(angle) - self.REST[1]
        position = torch.cat((0.2 * u[..., :2] - 0.1, torch.stack(target, -1)), -1)
        moving = 0.01 * u[..., 4:] - 0.005
        return self.begin(position, torch.cat((moving, torch.zeros_like(moving)), -1))

    def observe(self, state: Tensor) -> Tensor:
        joints = state[..., :2]
        parts = (torch.cos(joints), torch.sin(joints), state[..., 2:6], self.gap(state)[..., :2])
        return torch.cat(parts, -1).to(torch.float32)

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        next_state, diverged = self.advance(state, action)
        reward = -self.gap(next_state).norm(dim=-1) - self.cost_of(action)
        return next_state, reward.to(torch.float32), diverged

    def gap(self, state: Tensor) -> Tensor:
        """From the target to the fingertip, m, [P, N, 3]."""
        place = state[..., self.nq + 2 * self.nv :].unflatten(-1, (-1, 3))
        return place[..., self.FINGERTIP, :] - place[..., self.TARGET, :]
