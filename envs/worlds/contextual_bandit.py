"""The contextual bandit: an SE whose episodes are one step long (https://arxiv.org/abs/2406.12589).

init_net draws the state, or a table holds all that there are; reward_net pays the action; there are no dynamics. An
agent that maximises the reward of one step needs no credit assignment and no target network, which is why such worlds
also train agents they were not evolved with.
"""

from __future__ import annotations

import math
from typing import Callable, Sequence, Tuple, Union

import torch
from torch import Tensor

from envolve.envs.nets.networks import LATENT_SCALE, MLPShape, SideBySide
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.world import OUTPUT_BOUND, World, world_nets, world_size

Draw = Callable[[Tensor, Union[slice, Tensor]], Tensor]


class ContextualBandit(World):
    """params: float32 [P, D], init_net | reward_net of each member, or contexts | reward_net.

    init_net maps F uniform latents to the state; with ``stored_contexts`` K the state is row floor(u K) of a table
    [K, F] instead, u one uniform number. reward_net reads (action, state), a discrete action one-hot. Where the
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
        first, self.stored = params[:, : init.size], section.stored_contexts
        self.draw = _rows(first, init.outputs) if self.stored else _net(init, first)
        self.reward_net = SideBySide([reward], [params[:, init.size :]])

    @property
    def reset_uniforms(self) -> int:
        return 1 if self.stored else self.task.observation_size

    def reset(self, u: Tensor, members: Union[slice, Tensor] = slice(None)) -> Tensor:
        state = self.draw(u, members)
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


def _net(shape: MLPShape, flat: Tensor) -> Draw:
    """Function from uniforms [P, N, F] and members to init_net's states [P, N, F]. flat: [P, D]."""
    net = SideBySide([shape], [flat])
    return lambda u, members: net(LATENT_SCALE * (u.to(torch.float32) - 0.5), members)


def _rows(flat: Tensor, F: int) -> Draw:
    """Function from uniforms [P, N, 1] and members to rows floor(u K) of their tables, [P, N, F]. flat: [P, K F]."""
    table = flat.unflatten(1, (-1, F))
    return lambda u, members: table[members].gather(1, row_of(u, table.shape[1]).expand(-1, -1, F))


def row_of(u: Tensor, K: int) -> Tensor:
    """floor(u K), at most K - 1, int64. u: uniforms in [0, 1), float32 or float64, in which 1 may be rounded to."""
    return (u.double() * K).long().clamp_(max=K - 1)


def encoded(state: Tensor, codes: Sequence[Tuple[int, int]]) -> Tensor:
    """State [..., F] with a 1 at the largest number of each part [start, stop), the first if several are, and 0
    elsewhere in it."""
    for start, stop in codes:
        part = state[..., start:stop]
        code = torch.zeros_like(part).scatter_(-1, part.argmax(-1, keepdim=True), 1.0)
        state = torch.cat((state[..., :start], code, state[..., stop:]), -1)
    return state
