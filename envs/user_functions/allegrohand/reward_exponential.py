"""Falls off smoothly with the angle that is left, and asks for slow turns while the cube stays in the palm."""

import torch

from envolve.envs.sim.rotations import conjugate, multiply


def compute_reward(state):
    left = multiply(state["object_rotation"], conjugate(state["target_rotation"]))  # [n, 4]
    angle = 2 * torch.asin(left[:, :3].norm(dim=1).clamp(max=1))  # [n], rad
    off = (state["object_position"] - state["target_position"]).norm(dim=1)  # [n], m
    components = {
        "turned": torch.exp(-angle),
        "held": torch.exp(-off / 0.05),
        "spin": -0.02 * state["object_angular_velocity"].norm(dim=1),
        "reached": 10.0 * (angle <= 0.1),
    }
    return sum(components.values()), components
