"""The reward network (RN): the real task's dynamics with a learned reward (https://arxiv.org/abs/2202.02790).

phi is an MLP of the observation (one-hot for finite tasks), gamma the learner's discount:

====  ================================  =====================================================
type  reward                            name
====  ================================  =====================================================
0     r                                 none
1     gamma phi(s') - phi(s)            exclusive potential
2     r + gamma phi(s') - phi(s)        additive potential (Ng et al. 1999: same optimal policy)
5     phi(s')                           exclusive non-potential
6     r + phi(s')                       additive non-potential
====  ================================  =====================================================

The potential of a terminal state is not set to zero, as in the original.
"""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor

from envs.networks import forward
from envs.section import RN_TYPES, EnvSection
from envs.task import Task
from envs.world import World, rn_shape

POTENTIAL, ADDITIVE = (1, 2), (2, 6)


class RewardNetwork(World):
    """params: float32 [P, D], the net phi of each member; gamma: [P], the discount of the agent trained in it."""

    kind = "rn"

    def __init__(self, task: Task, section: EnvSection, params: Tensor, gamma: Tensor) -> None:
        self.shape = rn_shape(task, section)
        if params.dim() != 2 or params.shape[1] != self.shape.size:
            raise ValueError(f"RN parameters of shape {tuple(params.shape)}: expected [P, {self.shape.size}]")
        if gamma.shape != params.shape[:1]:
            raise ValueError(f"RN discount of shape {tuple(gamma.shape)}: expected [{params.shape[0]}]")
        if section.reward_env_type not in RN_TYPES:
            raise ValueError(f"reward_env_type {section.reward_env_type}: expected one of {RN_TYPES}")
        super().__init__(task, params.shape[0])
        self.type = section.reward_env_type
        self.params = params
        if self.type in (0, *ADDITIVE):  # the true reward is part of this one
            self.reward_noise = task.reward_noise
        self.gamma = gamma.to(torch.float32).unsqueeze(1)

    def phi(self, obs: Tensor) -> Tensor:
        """obs: [P, N, F] -> [P, N]."""
        return forward(self.shape, self.params, obs.transpose(1, 2))[:, 0]

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        next_state, reward, terminated = self.task.step(state, action)
        done = terminated.to(torch.float32)
        if self.type == 0:
            return next_state, reward, done, torch.zeros_like(terminated)
        next_obs = self.task.observe(next_state)
        if self.type in POTENTIAL:
            both = self.phi(torch.cat((next_obs, self.task.observe(state)), dim=1))  # one call for s' and s
            phi_next, phi = both.chunk(2, dim=1)
            shaped = self.gamma * phi_next - phi
        else:
            shaped = self.phi(next_obs)
        if self.type in ADDITIVE:
            shaped = reward + shaped
        failed = ~torch.isfinite(shaped)
        return next_state, torch.where(failed, torch.zeros_like(shaped), shaped), done, failed
