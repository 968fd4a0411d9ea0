"""Episodes of a goal task: P members with N environments each, which begin anew by themselves.

    episodes = Episodes(task, keys, N)
    features, goal = episodes.features, episodes.goal        # [P, N, S], [P, N, G]: what an agent sees
    outcome = episodes.step(action)                          # [P, N, A]

A start and a goal are drawn at every reset. ``resample="fixed"`` gives what JaxGCRL publishes: an environment gets the
start and the goal of its first episode again and again (its issue #53), so that a training knows N goals in all.

Random numbers: episode e of environment n is number e N + n of its member's key: the rest of the population, and
when others begin, changes nothing.
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.goal.task import GOAL, START, Beginnings, GoalTask, Random

RESAMPLE = ("reset", "fixed")


class DecisionOutcome(NamedTuple):
    """Outcome of a decision in every environment, [P, N]."""

    features: Tensor  # [P, N, S], where it led to; of an episode that is over, its last
    success: Tensor  # bool, near enough to the goal
    terminated: Tensor  # bool, over before its time
    over: Tensor  # bool, terminated or out of time: the next decision is another episode's


class Episodes:
    """Episodes of a task in plain torch. Another engine replaces ``_begin`` (put rows into states) and ``_advance``."""

    def __init__(
        self,
        task: GoalTask,
        keys: Tensor,
        N: int,
        resample: str = "reset",
        episode_length: int = 0,
        action_repeat: int = 1,
        beginnings: Optional[Beginnings] = None,
    ) -> None:
        """keys: int64 [P], on the device to use. episode_length: decisions, 0: the task's own. beginnings: None: the
        task's own. Raises ValueError."""
        if resample not in RESAMPLE:
            raise ValueError(f"resample: found {resample!r}, expected one of {', '.join(RESAMPLE)}")
        self.task, self.P, self.N, self.device = task, len(keys), N, keys.device
        self.fixed, self.action_repeat = resample == "fixed", action_repeat
        self.length = episode_length or task.episode_length
        self.beginnings = beginnings or task
        self.state = torch.zeros(self.P, N, task.state_numbers, device=self.device)
        self.features = torch.zeros(self.P, N, task.state_size, device=self.device)
        self.goal = torch.zeros(self.P, N, task.goal_size, device=self.device)
        self.t = torch.zeros(self.P, N, dtype=torch.int64, device=self.device)  # decisions in this episode
        self.episode = torch.zeros_like(self.t)  # its number; the first is 0
        self.decisions = 0  # since all began together
        self.begin_with(keys)

    def begin_with(self, keys: Tensor) -> None:
        """Begins all episodes, with these keys, int64 [P]."""
        # GOAL equals rng.RESET, so the starts' key descends from the goals' own. That does no harm, since a key's
        # numbers and its descendants' are others, and stays: another stream would change what every run draws.
        self.start_key, self.goal_key = rng.fold(rng.fold(keys, rng.RESET), START), rng.fold(keys, GOAL)
        self.episode.zero_()
        self.begin_all()

    def begin_all(self) -> None:
        """Begins the episodes of all environments."""
        self._reset(torch.arange(self.P * self.N, device=self.device))
        self.decisions = 0

    def _reset(self, ids: Tensor) -> None:
        """Begins the episodes of environments ids, int64 [K]: member * N + environment."""
        members = ids // self.N
        number = torch.zeros_like(ids) if self.fixed else self.episode.view(-1)[ids]
        number = number * self.N + ids % self.N
        start = self.beginnings.start(Random(self.start_key[members], number), members)
        goal = self.beginnings.goal(Random(self.goal_key[members], number), start, members)
        self.goal.view(-1, self.task.goal_size)[ids] = goal
        self.t.view(-1)[ids] = 0
        self._begin(ids, start)

    def _begin(self, ids: Tensor, start: Tensor) -> None:
        """Puts environments ids [K] into the states start [K, X], and updates ``features``."""
        self.state.view(-1, self.task.state_numbers)[ids] = start
        self.features.view(-1, self.task.state_size)[ids] = self.task.features(start)

    def _advance(self, action: Tensor) -> Tensor:
        """Makes one decision: new ``state`` and ``features``, in place -> terminated, bool [P, N]."""
        state = self.state
        for _ in range(self.action_repeat):
            state = self.task.dynamics(state, action)
        self.state.copy_(state)
        self.features.copy_(self.task.features(state))
        if self.task.terminates:
            return self.task.terminated(state)
        return torch.zeros(self.P, self.N, dtype=torch.bool, device=self.device)

    def advance(self, action: Tensor) -> DecisionOutcome:
        """First half of ``step``, made of tensor operations alone. Actions that are NaN count as 0."""
        terminated = self._advance(torch.nan_to_num(action).clamp(-1, 1))
        self.t += 1
        if self.task.goal_moves:
            self.goal.copy_(self.task.goal_now(self.features))
        success = self.task.success(self.features, self.goal)
        return DecisionOutcome(self.features, success, terminated, terminated | (self.t >= self.length))

    def finish(self, over: Tensor) -> bool:
        """Second half of ``step``: restarts the episodes that are over. Returns whether there was one."""
        self.decisions += 1
        if not self.task.terminates:  # all began together, so no check is needed
            if self.decisions < self.length:
                return False
            ids = torch.arange(self.P * self.N, device=self.device)
        else:
            ids = over.view(-1).nonzero()[:, 0]
            if not len(ids):
                return False
        self.episode.view(-1)[ids] += 1
        self._reset(ids)
        self.decisions = 0
        return True

    def step(self, action: Tensor) -> DecisionOutcome:
        """Makes one decision. action: [P, N, A]."""
        outcome = self.advance(action)
        last = outcome.features.clone()
        self.finish(outcome.over)
        return outcome._replace(features=last)

    # ------------------------------------------------------------------------------------------------ keeping a run

    KEPT = ("state", "features", "goal", "t", "episode")

    @property
    def storable(self) -> bool:
        """True if ``state_dict`` works, which some physics engines do not support."""
        return True

    def state_dict(self) -> Dict[str, Tensor]:
        state = {name: getattr(self, name).clone() for name in self.KEPT}
        return {**state, "decisions": torch.tensor(self.decisions)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name in self.KEPT:
            getattr(self, name).copy_(state[name])
        self.decisions = int(state["decisions"])
