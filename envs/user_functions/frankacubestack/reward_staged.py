"""Four stages that add up: the hand at cube A, cube A lifted, cube A above its place, cube A let go there."""

import torch


def compute_reward(state):
    a, b, hand = state["cube_a_position"], state["cube_b_position"], state["hand_position"]  # [n, 3] each
    reach = torch.exp(-10 * (a - hand).norm(dim=1))
    lift = ((a[:, 2] - 0.025) / 0.07).clamp(0, 1)  # 1 where cube A clears cube B
    place = a - b - torch.tensor([0.0, 0.0, 0.06], device=a.device)  # from where cube A belongs
    align = lift * torch.exp(-10 * place.norm(dim=1))
    stacked = (place.norm(dim=1) < 0.02) & ((a - hand).norm(dim=1) > 0.04)
    components = {"reach": 0.2 * reach, "lift": lift, "align": 2.0 * align, "stacked": 20.0 * stacked}
    return sum(components.values()), components
