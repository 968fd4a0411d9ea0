"""HalfCheetah-v3: a planar robot of seven links runs. Steps exactly as Gymnasium's ``HalfCheetah-v5``, which has the
model, the reward and the noise of v3 (https://gymnasium.farama.org/environments/mujoco/half_cheetah/)."""

from __future__ import annotations

from typing import ClassVar, List, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.envs.classic.mujoco_task import MuJoCoTask, normals
from envolve.envs.task import register

POSITIONS = VELOCITIES = 9  # torso x, z (m) and pitch (rad), then back thigh, shin, foot, front thigh, shin, foot (rad)
RESET_NOISE = 0.1  # m or rad: positions begin within +- this, velocities normal with this deviation (per s)
CONTROL_COST = 0.1


@register
class HalfCheetah(MuJoCoTask):
    """State: 9 positions, 9 velocities, 9 accelerations (``envs/classic/mujoco_task.py``). Observation: the positions
    but for x, then the velocities. Action: 6 motors, each in [-1, 1] of its largest torque.

    A step of 0.05 s pays the torso's mean forward velocity - 0.1 |action|^2, with the action as it was given, not as it
    was clipped. No episode ends before its time limit.

    A reset reads 19 uniforms: 9 are the positions, 5 pairs make the normal numbers, the last of which is not used.
    """

    name = "HalfCheetah-v3"
    model = "half_cheetah.xml"
    substeps = 5
    dt = 0.05
    observation_size = POSITIONS - 1 + VELOCITIES
    action_size = 6
    reset_uniforms = POSITIONS + VELOCITIES + 1
    info_names: ClassVar[Tuple[str, ...]] = ("x_position", "x_velocity", "reward_run", "reward_ctrl")
    default_max_steps = 1000
    default_solved_reward = 3000.0

    def reset(self, u: Tensor) -> Tensor:
        """Start state. u: [P, N, 19] -> state float64 [P, N, 27]."""
        u = u.to(torch.float64)
        position = -RESET_NOISE + 2 * RESET_NOISE * u[..., :POSITIONS]
        return self.begin(position, RESET_NOISE * normals(u[..., POSITIONS:])[..., :VELOCITIES])

    def observe(self, state: Tensor) -> Tensor:
        return state[..., 1 : POSITIONS + VELOCITIES].to(torch.float32)

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        next_state, diverged = self.advance(state, action)
        reward = self._velocity(state, next_state) - self._control_cost(action)
        return next_state, reward.to(torch.float32), diverged

    def info(self, state: Tensor, action: Tensor, next_state: Tensor) -> Tensor:
        """x after the step (m), mean velocity along x (m/s), and the two parts of the reward."""
        velocity = self._velocity(state, next_state)
        entries = (next_state[..., 0], velocity, velocity, -self._control_cost(action))
        return torch.stack([entry.to(torch.float32) for entry in entries], dim=-1)

    def _velocity(self, state: Tensor, next_state: Tensor) -> Tensor:
        return (next_state[..., 0] - state[..., 0]) / self.dt

    def _control_cost(self, action: Tensor) -> Tensor:
        """Control cost, in float32 and in the order of numpy's sum, as in Gymnasium. action: [P, N, 6] -> [P, N]."""
        squares = np.square(action.detach().cpu().numpy()).sum(-1)
        return CONTROL_COST * torch.from_numpy(squares).to(action.device)

    def observation_bounds(self) -> Tuple[List[float], List[float]]:
        high = [float("inf")] * self.observation_size
        return [-h for h in high], high
