"""The synthetic environment (SE): three MLPs stand for the task's dynamics, reward and end of episode.

Only the reset is the real task's (https://arxiv.org/abs/2202.02790). There is no time limit but the learner's.
The other kind of SE is the contextual bandit (contextual_bandit.py).
"""

from __future__ import annotations

from typing import Tuple, Union

import torch
from torch import Tensor

from envolve.envs.nets.networks import SideBySide
from envolve.envs.section import EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.contextual_bandit import ContextualBandit
from envolve.envs.worlds.world import OUTPUT_BOUND, World, world_nets, world_size


class SyntheticEnv(World):
    """params: float32 [P, D], the nets state_net | reward_net | done_net of each member.

    Each net reads (action, observation), a discrete action one-hot; state_net predicts the next observation itself, not
    its change. Of a finite task the state is a cell, the observation its one-hot code, and the next cell the argmax of
    state_net.
    """

    kind = "se"

    def __init__(self, task: Task, section: EnvSection, params: Tensor) -> None:
        size = world_size(self.kind, task, section)
        if params.dim() != 2 or params.shape[1] != size:
            raise ValueError(f"SE parameters of shape {tuple(params.shape)}: expected [P, {size}]")
        super().__init__(task, params.shape[0])
        self.actions = torch.arange(task.num_actions, device=params.device)
        self.raw_done = section.raw_done
        self.finite = task.num_states is not None
        shapes = [shape for _, shape in world_nets(self.kind, task, section)]
        self.nets = SideBySide(shapes, params.split([shape.size for shape in shapes], dim=1))

    def reset(self, u: Tensor, members: Union[slice, Tensor] = slice(None)) -> Tensor:
        first = self.task.first_observations(u)
        if first is not None:
            return first
        state = self.task.reset(u)
        return state if self.finite else self.task.observe(state)

    def observe(self, state: Tensor) -> Tensor:
        return self.task.observe(state) if self.finite else state

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        code = action if self.task.action_size else (action.unsqueeze(-1) == self.actions).to(torch.float32)
        out = self.nets(torch.cat((code, self.observe(state)), dim=-1))  # [P, N, F + 2]
        failed = ~torch.isfinite(out).all(-1)
        out = torch.nan_to_num(out, nan=0.0).clamp(-OUTPUT_BOUND, OUTPUT_BOUND)
        prediction, reward, done = out[..., :-2], out[..., -2], out[..., -1]
        next_state = prediction.argmax(-1, keepdim=True) if self.finite else prediction
        if not self.raw_done:
            done = (done > 0.5).to(torch.float32)
        return next_state, reward, done, failed


def synthetic_world(task: Task, section: EnvSection, params: Tensor) -> World:
    """The SE that the section describes. params: float32 [P, D]."""
    return (ContextualBandit if section.contextual_bandit else SyntheticEnv)(task, section, params)
