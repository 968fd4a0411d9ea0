"""Off-policy agents of candidates with equally wide observations and actions, which act, remember and learn as one
batch.

Observations are normalised by each candidate's own running mean and deviation, and rewards divided by the running
deviation of the discounted return (``agents/common/normaliser.py``): a learning rate has to serve all of a population's
scales. The memory holds what was observed and paid; normalised is what is sampled, with the numbers of the last
iteration's end, so that old transitions do not disagree with new ones.

Axes: L candidates, N environments each, B minibatch, F features, A actions, W = 2 F + A + 2 columns of a transition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Tuple, Type

import numpy as np
import torch
from torch import Tensor

from envolve.agents.common.cuda_graph import Graphs
from envolve.agents.common.hyper import draw
from envolve.agents.common.normaliser import CLIP, Moments
from envolve.agents.common.replay import Replay
from envolve.agents.off_policy.algorithm import Algorithm, Rows
from envolve.agents.off_policy.population import AgentPopulation, Widths
from envolve.core import rng

BLOCK = 32  # updates sampled at once


@dataclass
class InTraining(Rows):
    """Candidates still in training: fields [L], int64 unless noted."""

    row: Tensor  # number of the candidate
    explore: Tensor  # keys of the random streams
    replay: Tensor
    transition: Tensor  # float32 [L, N, W], of this step
    discounted: Tensor  # float64 [L, N], discounted sum of the rewards of this episode so far
    shift: Tensor  # float32 [L, W, 1]: a transition is learned from as (it - shift) factor
    factor: Tensor


class Batch:
    """L agents; each method acts on all of them."""

    def __init__(
        self,
        algorithm: Type[Algorithm],
        section: Any,
        widths: Tuple[int, int],
        members: Tensor,
        keys: np.ndarray,
        N: int,
        compiled_update: bool = False,
    ) -> None:
        """widths: (F, A); members: int64 [L], numbers of the candidates; keys: int64 [L]. compiled_update: make
        gradient steps by a kernel where there is one."""
        (F, A), device, L = widths, members.device, len(members)
        self.section, self.F, self.A, self.N = section, F, A, N
        W, key = 2 * F + A + 2, torch.as_tensor(keys, device=device)
        self.agents = AgentPopulation(algorithm, Widths(F, A), draw(section, keys), key)
        if compiled_update:
            self.agents.compile()
        self.memory = Replay(torch.full((L,), section.rb_size, device=device), W)
        self.observed, self.paid = Moments(L, self.F, device), Moments(L, 1, device)
        self.m = InTraining(
            row=members,
            explore=rng.fold(key, rng.EXPLORE),
            replay=rng.fold(key, rng.REPLAY),
            transition=torch.zeros(L, N, W, device=device),
            discounted=torch.zeros(L, N, dtype=torch.float64, device=device),
            shift=torch.zeros(L, W, 1, device=device),
            factor=torch.ones(L, W, 1, device=device),
        )
        self.updates = 0
        self.samples: List[Tensor] = []  # draws of the coming updates, the next one last
        self.graphs = Graphs(self._update, device.type == "cuda")

    @property
    def members(self) -> Tensor:
        """Numbers of the candidates, int64 [L]."""
        return self.m.row

    def keep(self, index: List[int]) -> None:
        """Keeps only these candidates."""
        rows = torch.tensor(index, dtype=torch.int64, device=self.m.row.device)
        self.m = self.m.keep(rows)
        for part in (self.agents, self.memory, self.observed, self.paid):
            part.keep(rows)
        self.samples.clear()
        self.graphs.forget()

    # ------------------------------------------------------------------------------------------------------- acting

    def normalised(self, own: Tensor) -> Tensor:
        """Normalises own observations: [L, N, F]."""
        m = self.m
        return ((own - m.shift[:, None, : self.F, 0]) * m.factor[:, None, : self.F, 0]).clamp_(-CLIP, CLIP)

    def begin(self) -> None:
        """Begins episodes in all environments."""
        self.m.discounted.zero_()

    def choose(self, obs: Tensor, decision: int, episode: int, action: Tensor) -> None:
        """Exploring actions for the batch's rows of obs [P, N, F_max]; writes them to action [P, N, A_max] and
        remembers both."""
        own, F, m = obs[self.m.row, :, : self.F], self.F, self.m
        draw = self.agents.side_by_side(m.explore, decision * self.N, self.N)
        chosen = self.agents.explore(self.normalised(own), torch.full_like(m.row, episode), draw)
        # Until the iteration's end finds that it diverged, an agent would blame the candidate's own functions.
        chosen = torch.nan_to_num(chosen)
        self.observed.add(own)
        m.transition[:, :, :F] = own
        m.transition[:, :, 2 * F : 2 * F + self.A] = chosen
        action[m.row, :, : self.A] = chosen

    def act(self, obs: Tensor, action: Tensor) -> None:
        """Deterministic actions; nothing is remembered."""
        chosen = self.agents.greedy(self.normalised(obs[self.m.row, :, : self.F]))
        action[self.m.row, :, : self.A] = torch.nan_to_num(chosen)

    # ----------------------------------------------------------------------------------------------------- learning

    def store(self, reward: Tensor, last_obs: Tensor, done: Tensor, over: Tensor) -> None:
        """Stores the outcome of the actions; all [P, N, ...]. done: terminal, over: end of the episode."""
        m, F = self.m, self.F
        own = reward[m.row]
        m.transition[:, :, F : 2 * F] = last_obs[m.row, :, :F]
        m.transition[:, :, -2], m.transition[:, :, -1] = own, done[m.row].float()
        if self.memory.make_room(self.N):
            self.graphs.forget()
        self.memory.write_many(m.transition)
        m.discounted.mul_(self.section.gamma).add_(own)
        self.paid.add(m.discounted[:, :, None])
        m.discounted.masked_fill_(over[m.row], 0)

    def learn(self, count: int) -> None:
        for _ in range(count):
            if not self.samples:
                numbers, B = self.agents.updates, self.section.batch_size
                self.samples = list(self.memory.draws(self.m.replay, numbers, BLOCK, B).flip(0))
            self.updates += 1
            self.graphs(self.agents.actors_turn(self.updates), self.samples.pop())

    def _update(self, actor: bool, sample: Tensor) -> Tuple[Tensor, ...]:
        m = self.m
        # Actions lie in [-1, 1] and ends are 0 or 1: clipping is for observations and rewards.
        batch = self.memory.sample(sample).sub_(m.shift).mul_(m.factor).clamp_(-CLIP, CLIP)
        self.agents.learn(batch, actor)
        return ()

    def merge(self) -> None:
        """Ends an iteration: merges its observations and rewards into the normalisers."""
        m, F = self.m, self.F
        self.observed.merge()
        self.paid.merge()
        mean, scale = self.observed.mean.float(), self.observed.scale
        for first in (0, F):  # s, s'
            m.shift[:, first : first + F, 0], m.factor[:, first : first + F, 0] = mean, scale
        m.factor[:, -2] = self.paid.scale

    def finite(self) -> Tensor:
        """Finite weights, bool [L]."""
        return self.agents.finite()

    def policy(self, k: int) -> Dict[str, Tensor]:
        """Weights and normaliser of row k of the batch; see ``ShapedOffPolicy.policy``."""
        s, m = self.section, self.m
        return {
            "weights": self.agents.params[k].clone(),
            "observation_mean": m.shift[k, : self.F, 0].clone(),
            "observation_scale": m.factor[k, : self.F, 0].clone(),
            "sizes": torch.tensor([self.F, self.A, s.hidden_size, max(1, s.hidden_layer)]),
        }
