"""Interface of goal-conditioned tasks, and of the distribution of their starts and goals.

A ``GoalTask`` holds constants and functions, no episodes; ``envs/goal/episodes.py`` runs them. A task in plain torch
implements ``dynamics`` and ``features``; one in a physics engine has its own episodes (``Episodes`` says which methods
those replace). Starts and goals can come from another source, a ``Beginnings``, which the task itself is, too: a shaper
of starts and goals implements it. Evaluation always uses the task's own.

Axes: P members, N environments each, K rows that begin, X numbers of a state, S features of it, G of a goal, A actions.
"""

from __future__ import annotations

from typing import Callable, ClassVar, Tuple, Union

import torch
from torch import Tensor

from envolve.core import rng
from envolve.core.registry import Registry

START, GOAL = 1, 2  # streams of a member's random numbers
NUMBERS = 1024  # of one start or goal


class Random:
    """Random numbers of K rows, in sequence: the same for an episode, whichever others begin with it."""

    def __init__(self, key: Tensor, number: Tensor) -> None:
        """key: int64 [K]; number: int64 [K], of the episode among those of its key."""
        self.key = rng.advance(key, number * NUMBERS)[:, None]
        self.used = 0

    def _counter(self, count: int) -> Tensor:
        self.used += count
        if self.used > NUMBERS:
            raise ValueError(f"more than {NUMBERS} random numbers for one start or goal")
        return torch.arange(self.used - count, self.used, device=self.key.device)

    def uniform(self, count: int) -> Tensor:
        """Uniform numbers in [0, 1), float32 [K, count]."""
        return rng.uniform(self.key, self._counter(count))

    def normal(self, count: int) -> Tensor:
        return rng.normal(self.key, self._counter(count))


class Beginnings:
    """Distribution of starts and goals. members: int64 [K], the member of the population to which each row belongs."""

    def start(self, random: Random, members: Tensor) -> Tensor:
        """Draws starts, float32 [K, X]."""
        raise NotImplementedError

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        """Draws goals float32 [K, G] for the starts [K, X] of the same episodes."""
        raise NotImplementedError


class GoalTask(Beginnings):
    """Base class. Sub-classes fill in the class attributes and methods."""

    name: ClassVar[str] = ""
    state_numbers: ClassVar[int] = 0  # X, what the dynamics need
    state_size: ClassVar[int] = 0  # S, what an agent sees beside the goal
    action_size: ClassVar[int] = 0  # A; actions lie in [-1, 1]
    goal_indices: ClassVar[Tuple[int, ...]] = ()  # the features that should come near the goal
    threshold: ClassVar[float] = 0.5  # m, how near is near enough
    episode_length: ClassVar[int] = 1000  # decisions
    dt: ClassVar[float] = 0.05  # s, of one decision
    terminates: ClassVar[bool] = False  # whether an episode can end before its time
    on_host: ClassVar[bool] = False  # true: a step leaves the state's device, so no CUDA graph can hold it

    start_indices: ClassVar[Tuple[int, ...]] = (0, 1)  # numbers of a start that a shaper may move (shapers.py)
    goals_shaped: ClassVar[bool] = True  # whether it may draw goals, too: not where they follow from the start
    goal_moves: ClassVar[bool] = False  # whether goals change within an episode: ``goal_now``

    def whereabouts(self, start: Tensor) -> Tensor:
        """Part of starts [K, X] that goals are about, [K, G]."""
        return self.achieved(self.features(start))

    @property
    def goal_size(self) -> int:
        return len(self.goal_indices)

    def achieved(self, features: Tensor) -> Tensor:
        """Part of features [.., S] that goals are about, [.., G]."""
        first, last = self.goal_indices[0], self.goal_indices[-1]
        if self.goal_indices == tuple(range(first, last + 1)):
            return features[..., first : last + 1]
        return torch.stack([features[..., i] for i in self.goal_indices], -1)  # an index list is no CUDA graph's

    def distance(self, features: Tensor, goal: Tensor) -> Tensor:
        """Distance to the goal in m, [..]. features [.., S], goal [.., G]."""
        return (self.achieved(features) - goal).square().sum(-1).sqrt()

    def success(self, features: Tensor, goal: Tensor) -> Tensor:
        """True near the goal, bool [..]."""
        return self.distance(features, goal) < self.threshold

    def goal_now(self, features: Tensor) -> Tensor:
        """New goals of episodes that have reached features [.., S], for tasks with moving goals."""
        raise NotImplementedError

    def reward(self, features: Tensor, goal: Tensor, dense: bool) -> Tensor:
        """Reward of decisions that led to features, float32 [..]: 1 near the goal, else 0; dense: minus the distance,
        m."""
        return -self.distance(features, goal) if dense else self.success(features, goal).float()

    # ------------------------------------------------------------------------------------------ tasks in plain torch

    def features(self, state: Tensor) -> Tensor:
        """Features float32 [.., S] of state float32 [.., X]."""
        raise NotImplementedError

    def dynamics(self, state: Tensor, action: Tensor) -> Tensor:
        """State dt later. state [.., X], action [.., A] in [-1, 1]. Branches on no value."""
        raise NotImplementedError

    def terminated(self, state: Tensor) -> Tensor:
        """Terminal states, bool [..], for tasks that terminate."""
        raise NotImplementedError


GOAL_TASKS: Registry[Callable[[], GoalTask]] = Registry("goal task")
register = GOAL_TASKS.named


def make_goal_task(name: Union[str, GoalTask]) -> GoalTask:
    """Task called ``name``. Raises ValueError with the nearest known name."""
    import envolve.envs.goal.tasks  # noqa: F401  fills GOAL_TASKS

    return name if isinstance(name, GoalTask) else GOAL_TASKS.find(name)()
