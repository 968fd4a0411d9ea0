"""Point masses in place of a simulator, with the interface of ``envolve.envs.shaping.envs.ShapedEnvs``."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from envolve.core import rng

DT, REACHED, EDGE = 0.1, 0.25, 4.0  # s; m from the goal, the origin: there, and where episodes end
AXES = 4  # as many as any candidate may have: what one lives through must not depend on the others' number


class Step(NamedTuple):
    obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    last_obs: Tensor
    score: Tensor


class PointMasses:
    """Candidate i moves on A_i axes by its acceleration; the reward is what the distance to the origin leaves of 4 m.
    It sees A_i positions and velocities, then zeros up to its own F_i; all of that times ``scale``."""

    def __init__(
        self,
        widths: Sequence[Tuple[int, int]],
        N: int = 4,
        max_steps: int = 50,
        scale: Sequence[float] = (),
        seeds: Sequence[int] = (),
        fails: Dict[int, int] = {},  # noqa: B006
        nan_reward: Sequence[int] = (),
    ) -> None:
        """widths: (F, A) of each candidate, F at least 2 A; fails: at which step a candidate fails; nan_reward: those
        whose rewards are not finite, which no simulator hands out but which makes weights diverge."""
        self.P, self.N, self.max_steps, self.widths = len(widths), N, max_steps, list(widths)
        self.observation_sizes, self.action_sizes = [F for F, _ in widths], [A for _, A in widths]
        self.scale = torch.tensor(list(scale) or [1.0] * self.P)[:, None, None]
        self.seeds = torch.tensor(list(seeds) or list(range(self.P)))
        self.fails, self.nan_reward = dict(fails), list(nan_reward)
        self.device = torch.device("cpu")
        self.live, self.failures, self.evaluation = torch.ones(self.P, dtype=torch.bool), {}, False  # type: ignore[var-annotated]
        self.F, self.A = max(self.observation_sizes), max(self.action_sizes)
        self.own = torch.zeros(self.P, 1, AXES)  # 1 on the axes that a candidate has
        for i, A in enumerate(self.action_sizes):
            self.own[i, :, :A] = 1
        self.x, self.v = torch.zeros(2, self.P, N, AXES)
        self.t, self.clock = torch.zeros(self.P, N, dtype=torch.int64), 0
        self.episode_scores: List[float] = []

    def begin(self, evaluation: bool = False, staggered: bool = False) -> Tensor:
        self.evaluation = evaluation
        self._reset(torch.ones(self.P, self.N, dtype=torch.bool))
        if staggered:
            self.t += torch.arange(self.N) * self.max_steps // self.N
        return self._observe()

    def _reset(self, which: Tensor) -> None:
        counter = (self.clock * self.N + torch.arange(self.N)[:, None]) * AXES + torch.arange(AXES)
        start = (rng.uniform(rng.fold(self.seeds, rng.RESET)[:, None, None], counter) * 4 - 2) * self.own
        self.x = torch.where(which[:, :, None], start, self.x)
        self.v = torch.where(which[:, :, None], torch.zeros_like(start), self.v)
        self.t.masked_fill_(which, 0)

    def _observe(self) -> Tensor:
        obs = torch.zeros(self.P, self.N, self.F)
        for i, A in enumerate(self.action_sizes):
            obs[i, :, :A], obs[i, :, A : 2 * A] = self.x[i, :, :A], self.v[i, :, :A]
        return obs * self.scale * self.live[:, None, None]

    def step(self, action: Tensor) -> Any:
        self.clock += 1
        assert action.shape == (self.P, self.N, self.A)
        action = torch.nn.functional.pad(action, (0, AXES - self.A))
        assert not (action * (1 - self.own)).any()
        self.v = 0.9 * self.v + DT * 3 * action.clamp(-1, 1) * self.own
        self.x = self.x + DT * self.v
        self.t += 1
        for i, when in self.fails.items():
            if self.clock >= when:
                self.live[i], self.failures[i] = False, "failed"
        distance = sum(self.x[:, :, a].square() for a in range(AXES)).sqrt()  # type: ignore[union-attr]
        live = self.live[:, None]
        reward = (EDGE - distance) * self.scale[:, :, 0]
        reward[self.nan_reward] = torch.nan
        terminated = (distance > EDGE) & live
        truncated = (self.t >= self.max_steps) & ~terminated & live
        last_obs = self._observe()
        if (terminated | truncated).any():
            self._reset(terminated | truncated)
        return Step(
            self._observe(),
            reward.masked_fill(~live, 0),
            terminated,
            truncated,
            last_obs,
            (distance < REACHED).double(),
        )
