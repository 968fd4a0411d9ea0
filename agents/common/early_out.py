"""Early-out rules of every learner: when training ends, by the logged rewards of its episodes."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from envolve.agents.common.sections import LearnerSection


def window_mean(logged: Tensor, end: Tensor, window: int, row: Optional[Tensor] = None) -> Tensor:
    """Mean of the up to ``window`` logged rewards before episode ``end``; 0 where there is none.

    logged: [P, E]; end: int64 [K] (may be negative); row: int64 [K], whose episode it is, default 0 .. P - 1
    -> float64 [K]. As published, divided by their count + 1e-9.
    """
    row = torch.arange(len(logged), device=end.device) if row is None else row
    index = end[:, None] + torch.arange(-window, 0, device=end.device)
    last = logged[row[:, None], index.clamp(min=0)].double()
    # cumsum adds one episode after the other, as the compiled tabular learner does: sum would round in another order
    total = torch.where(index >= 0, last, 0.0).cumsum(1)[:, -1]
    return total / (end.clamp(0, window).double() + 1e-9)


def early_out(
    logged: Tensor,
    episode: Tensor,
    steps: Tensor,
    section: LearnerSection,
    settles: bool,
    solved_reward: float,
    row: Optional[Tensor] = None,
) -> Tensor:
    """Decides which members end training early after ``episode`` -> bool [K].

    logged: float32 [P, E], one reward per episode so far; episode, steps: int64 [K], index of the episode that ended
    and environment steps taken since training began; row: int64 [K], whose episode it is, default 0 .. P - 1.
    settles: the returns must have settled, which is the rule of an SE whose agents are not tested on the real task
    meanwhile; elsewhere their mean must reach ``solved_reward``.
    """
    window = section.early_out_num
    average = window_mean(logged, episode + 1, window, row)
    begun = episode >= section.init_episodes
    if not settles:
        return begun & (average >= solved_reward)
    before = window_mean(logged, episode + 1 - window, window, row)
    settled = (average - before).abs() / (before.abs() + 1e-9) < section.early_out_virtual_diff
    return settled & (steps >= section.early_out_min_steps) & (episode >= section.init_episodes + window)
