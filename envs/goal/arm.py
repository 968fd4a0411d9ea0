"""Position-controlled arm (envs/models/arm.xml) that brings its end to a point, as in JaxGCRL
(https://arxiv.org/abs/2408.11052), with an arm of the same lengths."""

from __future__ import annotations

import torch
from torch import Tensor

from envolve.envs.goal.simulated import SimulatedTask
from envolve.envs.goal.task import Random, register
from envolve.envs.sim.simulator import BODY_STATE, Simulator

REST = (1.571, 0.742, 0.0, -1.571, 0.0, 3.054, 1.449)  # rad, of the joints at first
MOVED = (0, 1, 3, 5)  # the joints that actions set; the others stay as they are
LOW, HIGH = (0.3491, 0.0, -3.0718, 2.3562), (2.7925, 1.48353, -0.0698, 3.7525)  # rad, for actions of -1 and 1
BOX = ((-0.2, 0.3, 0.1), (0.2, 0.7, 0.5))  # m, opposite corners of where goals are


def angles(action: Tensor) -> Tensor:
    """Target angles of all joints, rad, [n, 7]. action: [n, 4]."""
    low, high = action.new_tensor(LOW), action.new_tensor(HIGH)
    out = action.new_tensor(REST).repeat(len(action), 1)
    out[:, MOVED] = low + (high - low) * (action + 1) / 2
    return out


class Arm(SimulatedTask):
    """Reaching with the arm. Actions set target angles of four joints; the controls of this model are angles, so
    ``effort`` returns them."""

    model = "arm.xml"
    substeps = 25


@register
class ArmReach(Arm):
    """Features: 7 angles; position and velocity of the last link's beginning (before the last substep)."""

    name = "arm_reach"
    outputs = (BODY_STATE,)
    state_numbers = 14
    state_size = 13
    action_size = 4
    goal_indices = (7, 8, 9)
    threshold = 0.1
    episode_length = 100

    def start(self, random: Random, members: Tensor) -> Tensor:
        return torch.tensor(REST + 7 * (0.0,), device=members.device).repeat(len(members), 1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        low, high = torch.tensor(BOX, device=members.device)
        return low + (high - low) * random.uniform(3)

    def whereabouts(self, start: Tensor) -> Tensor:
        """Start positions by trigonometry, with joints 3 and 5 at 0."""
        q1, q2, q4, q6 = (start[:, i] for i in MOVED)
        forearm, last = q2 - q4, q2 - q4 - q6  # turned forward so far
        forward = 0.316 * q2.sin() + 0.0825 * (q2.cos() - forearm.cos()) + 0.384 * forearm.sin() + 0.088 * last.cos()
        up = 0.316 * q2.cos() + 0.0825 * (forearm.sin() - q2.sin()) + 0.384 * forearm.cos() - 0.088 * last.sin()
        return torch.stack((forward * q1.cos(), forward * q1.sin(), 0.333 + up), 1)

    def measure(self, sim: Simulator) -> Tensor:
        end = sim.output(BODY_STATE)[:, sim.body_index("link7")]
        return torch.cat((sim.joint_position, end[:, :3], end[:, 7:10]), 1)

    def effort(self, action: Tensor, sim: Simulator) -> Tensor:
        """Target angles in rad, [n, 7]."""
        return angles(action)
