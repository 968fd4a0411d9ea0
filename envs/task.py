"""Interface of tasks: the real problems, with dynamics, reset and a score that no world can change.

State is explicit (as in gymnax): a task object holds constants only, so one object serves every member, back end and
thread. Axes: P members, N environments per member.
"""

from __future__ import annotations

import math
from typing import Any, Callable, ClassVar, Dict, List, Optional, Tuple

from torch import Tensor

from envolve.core.registry import Registry

NEVER_SOLVED = 1e9  # a solved_reward from here on means that the task has no such mark


class Task:
    """Base class. Sub-classes fill in the class attributes and the three methods."""

    name: ClassVar[str] = ""
    observation_size: ClassVar[int] = 0  # F; for finite tasks the number of states (observations are one-hot)
    num_actions: ClassVar[int] = 0  # discrete tasks: actions are int64 [P, N]; 0 for continuous ones
    action_size: ClassVar[int] = 0  # A of continuous tasks: actions are float32 [P, N, A]; 0 for discrete ones
    max_action: ClassVar[float] = 1.0  # continuous actions lie in [-max_action, max_action]; the task clips them itself
    num_states: ClassVar[Optional[int]] = None  # finite tasks only
    codes: ClassVar[Tuple[Tuple[int, int], ...]] = ()  # features [start, stop) that are one-hot codes
    reset_uniforms: ClassVar[int] = 0  # uniforms in [0, 1) that one reset consumes
    reward_noise: ClassVar[float] = 0.0  # standard deviation of the true reward; ``step`` returns its mean
    info_names: ClassVar[Tuple[str, ...]] = ()  # the entries of ``info``, of tasks that have an info vector
    on_host: ClassVar[bool] = False  # true: ``step`` leaves the state's device, so no CUDA graph can hold it
    gymnasium: ClassVar[str] = ""  # Gymnasium's environment of which every step is the same; "": there is none
    costly: ClassVar[bool] = False  # true: a step costs so much that tests leave out the episodes that are over
    stops_itself: ClassVar[bool] = False  # true: ``stopped`` says which episodes were cut or have failed
    reward_scale: ClassVar[float] = 1.0  # what learners on the task see is the reward times this
    default_max_steps: ClassVar[int] = 0
    default_solved_reward: ClassVar[float] = 0.0

    def __init__(self, max_steps: Optional[int] = None, solved_reward: Optional[float] = None) -> None:
        self.max_steps = self.default_max_steps if max_steps is None else int(max_steps)
        self.solved_reward = float(self.default_solved_reward if solved_reward is None else solved_reward)
        self.test_steps = self.max_steps  # steps until an episode of a test is cut, at most max_steps

    @property
    def action_inputs(self) -> int:
        """Length of the action's code, the first input of a network: one-hot if discrete, else the action itself."""
        return self.num_actions or self.action_size

    @property
    def info_size(self) -> int:
        """V, the length of the info vector; 0: the task has none."""
        return len(self.info_names)

    def reset(self, u: Tensor) -> Tensor:
        """u: uniforms [P, N, reset_uniforms] -> state [P, N, S] (float64 or float32; finite tasks: int64 [P, N, 1])."""
        raise NotImplementedError

    def observe(self, state: Tensor) -> Tensor:
        """state [P, N, S] -> observation float32 [P, N, F]."""
        raise NotImplementedError

    def step(self, state: Tensor, action: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """state [P, N, S], action int64 [P, N] or float32 [P, N, A] -> next state [P, N, S], reward float32 [P, N],
        terminated bool [P, N].

        Time limits are the caller's: a task never truncates itself.
        """
        raise NotImplementedError

    def info(self, state: Tensor, action: Tensor, next_state: Tensor) -> Tensor:
        """Info vector float32 [P, N, V] of the step from ``state`` to ``next_state``."""
        raise NotImplementedError(f"{self.name} has no info vector")

    def stopped(self, state: Tensor) -> Tuple[Tensor, Tensor]:
        """Which episodes of a task that ``stops_itself`` were truncated, and which failed: bool [P, N] each."""
        raise NotImplementedError(f"{self.name} leaves time limits to the caller")

    def first_observations(self, u: Tensor) -> Optional[Tensor]:
        """Observations float32 [P, N, F] at the beginning of episodes, of tasks that have them without a reset; u as of
        ``reset``. None: ``observe(reset(u))`` is what to call."""
        return None

    def release(self, state: Tensor) -> None:
        """Says that the caller will not step these episodes again. Tasks with an explicit state alone need nothing."""

    def complaint(self, state: Tensor) -> str:
        """Why an episode of these states failed; "": none did, or the task cannot say."""
        return ""

    def episodes_at_once(self, members: int) -> Optional[int]:
        """Most episodes of each member that one batch of tests may have; None: any number."""
        return None

    def observation_bounds(self) -> Tuple[List[float], List[float]]:
        """(low, high) of each observation feature, as Gymnasium's Box; default: no bounds."""
        return [-math.inf] * self.observation_size, [math.inf] * self.observation_size


def mark_of(solved_reward: Optional[float]) -> Optional[float]:
    """Mean return that solves the task, from what a configuration, a task or a run says; None: there is no such mark.
    The stand-in is a number, because configurations of earlier runs hold it."""
    return None if solved_reward is None or solved_reward >= NEVER_SOLVED else solved_reward


TASKS: Registry[Callable[..., Task]] = Registry("task", error=KeyError)
register = TASKS.named
ARGUMENTS_KEY = "env_kwargs"  # of the section of a task of the user's own
ARGUMENTS: Dict[str, Dict[str, Any]] = {}  # of their classes, by the name of the task, as the latest section says


def make_task(name: str, max_steps: Optional[int] = None, solved_reward: Optional[float] = None) -> Task:
    """Task called ``name``, with its ``ARGUMENTS``. Raises KeyError with the nearest known name."""
    return TASKS.find(name)(max_steps=max_steps, solved_reward=solved_reward, **ARGUMENTS.get(name, {}))
