"""The contextual bandit: an SE whose episodes are one step long (https://arxiv.org/abs/2406.12589).

init_net draws the state, reward_net pays the action; there are no dynamics. An agent that maximises the reward of one
step needs no credit assignment and no target network, which is why such worlds also train agents they were not evolved
with.
"""

from __future__ import annotations

import math
from typing import Sequence, Tuple, Union

import torch
from torch import Tensor

from envolve.envs.nets.networks import SideBySide
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.world import OUTPUT_BOUND, World, world_nets, world_size

LATENT_SCALE = 2.0 * math.sqrt(3.0)  # z = scale (u - 1/2) has mean 0 and variance 1


class ContextualBandit(World):
    """params: float32 [P, D], the nets init_net | reward_net of each member.

    init_net maps F uniform latents to the state; reward_net reads (action, state), a discrete action one-hot. Where the
    task's observations hold a one-hot code, so does the state: 1 at the largest output of that part, 0 elsewhere. A
    state with an output that is not finite is NaN in all features, and the step from it has failed.
    """

    kind = "se"

    def __init__(self, task: Task, section: EnvSection, params: Tensor) -> None:
        size = world_size(self.kind, task, section)
        if params.dim() != 2 or params.shape[1] != size:
            raise ValueError(f"contextual bandit's parameters of shape {tuple(params.shape)}: expected [P, {size}]")
        super().__init__(task, params.shape[0])
        self.actions = torch.arange(task.num_actions, device=params.device)
        init, reward = (shape for _, shape in world_nets(self.kind, task, section))
        self.init_net = SideBySide([init], [params[:, : init.size]])
        self.reward_net = SideBySide([reward], [params[:, init.size :]])

    @property
    def reset_uniforms(self) -> int:
        return self.task.observation_size

    def reset(self, u: Tensor, members: Union[slice, Tensor] = slice(None)) -> Tensor:
        state = self.init_net(LATENT_SCALE * (u.to(torch.float32) - 0.5), members)
        finite = torch.isfinite(state).all(-1, keepdim=True)
        bounded = encoded(state.clamp(-OUTPUT_BOUND, OUTPUT_BOUND), self.task.codes)
        return torch.where(finite, bounded, torch.full_like(state, math.nan))

    def observe(self, state: Tensor) -> Tensor:
        return state

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        code = action if self.task.action_size else (action.unsqueeze(-1) == self.actions).to(torch.float32)
        reward = self.reward_net(torch.cat((code, state), dim=-1))[..., 0]
        failed = ~(torch.isfinite(reward) & torch.isfinite(state[..., 0]))
        reward = torch.nan_to_num(reward, nan=0.0).clamp(-OUTPUT_BOUND, OUTPUT_BOUND)
        return state, reward, torch.ones_like(reward), failed


def encoded(state: Tensor, codes: Sequence[Tuple[int, int]]) -> Tensor:
    """State [..., F] with a 1 at the largest number of each part [start, stop), the first if several are, and 0
    elsewhere in it."""
    for start, stop in codes:
        part = state[..., start:stop]
        code = torch.zeros_like(part).scatter_(-1, part.argmax(-1, keepdim=True), 1.0)
        state = torch.cat((state[..., :start], code, state[..., stop:]), -1)
    return state
