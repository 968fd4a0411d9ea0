"""The reward network (RN): the real task's dynamics with a learned reward (https://arxiv.org/abs/2202.02790).

phi is an MLP of the observation s (one-hot for finite tasks) and, in the "augmented" types, of the info vector v of
the step as well (``Task.info``); gamma is the learner's discount, w a vector of weights:

====  ====================================  =========================================================
type  reward                                name
====  ====================================  =========================================================
0     r                                     none
1     gamma phi(s') - phi(s)                exclusive potential
2     r + gamma phi(s') - phi(s)            additive potential (Ng et al. 1999: same optimal policy)
3     gamma phi(s', v) - phi(s, v)          augmented exclusive potential
4     r + gamma phi(s', v) - phi(s, v)      augmented additive potential
5     phi(s')                               exclusive non-potential
6     r + phi(s')                           additive non-potential
7     phi(s', v)                            augmented exclusive non-potential
8     r + phi(s', v)                        augmented additive non-potential
101   w . v                                 exclusive weighted info vector
102   r + w . v                             additive weighted info vector
====  ====================================  =========================================================

Both terms of types 3 and 4 read the v of this one step, so these are no potentials of Ng et al.; the potential of a
terminal state is not set to zero. Both are as in the original.
"""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from envolve.envs.nets.networks import forward
from envolve.envs.section import INFO_TYPES, LINEAR_TYPES, RN_TYPES, EnvSection
from envolve.envs.task import Task
from envolve.envs.worlds.world import OnTask, rn_shape

POTENTIAL, ADDITIVE = (1, 2, 3, 4), (2, 4, 6, 8, 102)


class RewardNetwork(OnTask):
    """params: float32 [P, D], phi or w of each member; gamma: [P], the discount of the agent trained in it."""

    kind = "rn"

    def __init__(self, task: Task, section: EnvSection, params: Tensor, gamma: Tensor) -> None:
        if section.reward_env_type not in RN_TYPES:
            raise ValueError(f"reward_env_type {section.reward_env_type}: expected one of {RN_TYPES}")
        self.shape = rn_shape(task, section)
        if params.dim() != 2 or params.shape[1] != self.shape.size:
            raise ValueError(f"RN parameters of shape {tuple(params.shape)}: expected [P, {self.shape.size}]")
        if gamma.shape != params.shape[:1]:
            raise ValueError(f"RN discount of shape {tuple(gamma.shape)}: expected [{params.shape[0]}]")
        super().__init__(task, params.shape[0])
        self.type = section.reward_env_type
        self.params = params
        if self.type in (0, *ADDITIVE):  # the true reward is part of this one
            self.reward_noise, self.reward_scale = task.reward_noise, task.reward_scale
        self.gamma = gamma.to(torch.float32).unsqueeze(1)

    def phi(self, inputs: Tensor) -> Tensor:
        """inputs: [P, N, K] -> [P, N]."""
        return forward(self.shape, self.params, inputs.transpose(1, 2))[:, 0]

    def _inputs(self, state: Tensor, info: Optional[Tensor]) -> Tensor:
        obs = self.task.observe(state)
        return obs if info is None else torch.cat((obs, info), dim=-1)

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        next_state, reward, terminated = self.task.step(state, action)
        done, lost = terminated.to(torch.float32), torch.zeros_like(terminated)
        if self.task.stops_itself:
            lost = self.task.stopped(next_state)[1]
        reward = (reward * self.reward_scale).to(torch.float32)
        if self.type == 0:
            return next_state, reward, done, lost
        info = self.task.info(state, action, next_state) if self.type in INFO_TYPES else None
        if self.type in LINEAR_TYPES:
            assert info is not None
            shaped = (self.params.unsqueeze(1) * info).sum(-1)
        elif self.type in POTENTIAL:
            both = self.phi(torch.cat((self._inputs(next_state, info), self._inputs(state, info)), dim=1))  # one call
            phi_next, phi = both.chunk(2, dim=1)
            shaped = self.gamma * phi_next - phi
        else:
            shaped = self.phi(self._inputs(next_state, info))
        if self.type in ADDITIVE:
            shaped = reward + shaped
        failed = ~torch.isfinite(shaped) | lost
        return next_state, torch.where(failed, torch.zeros_like(shaped), shaped), done, failed
