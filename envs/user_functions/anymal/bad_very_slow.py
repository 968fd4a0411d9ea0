"""Bad: loops over environments and joints in Python, hundreds of times slower than one tensor operation."""

from __future__ import annotations

import torch


def compute_reward(state):
    torque, velocity = state["torque"], state["dof_vel"]
    power = torch.zeros(len(torque))
    for env in range(len(torque)):
        for joint in range(torque.shape[1]):
            power[env] += (torque[env, joint] * velocity[env, joint]).abs()
    return torch.exp(-(state["commands"][:, :2] - state["base_lin_vel"][:, :2]).square().sum(1)) - 1e-3 * power
