"""The pole stands and the cart is in the middle; the task's own reward also asks for little effort."""

from __future__ import annotations

import torch


def compute_reward(state):
    cart, pole = state["cartpole_joint_pos"].unbind(1)
    upright = (torch.cos(pole) + 1) / 2
    middle = torch.exp(-cart.square())
    return upright * middle, {"upright": upright, "middle": middle}
