"""Interface between an off-policy learner and the loop that trains it (``agents/off_policy/training.py``).

An algorithm holds the parameters of L agents and three rules: how they explore, how they act in a test, and one update.
Everything that happens at every decision is written so that a CUDA graph can replay it: state is updated in place, no
value is read back, no branch depends on one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Tuple, Type

import torch
from torch import Tensor

from envolve.agents.common.hyper import Hyper, column
from envolve.agents.common.population import Nets
from envolve.agents.common.sections import LearnerSection
from envolve.envs.task import Task


@dataclass
class Rows:
    """Tensors ``[L, ...]``, a row per member."""

    def keep(self, index: Tensor) -> Any:
        """Selected rows, as a new object of the same class."""
        values = [getattr(self, field.name) for field in fields(self)]
        return type(self)(*(value[index.to(value.device)] for value in values))

    def put(self, index: Tensor, other: Any, rows: Tensor) -> None:
        """Overwrites rows ``index`` with rows ``rows`` of ``other``, in place."""
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(other, field.name)[rows]


@dataclass
class AgentRows(Rows):
    """State that every algorithm keeps for its L agents with D parameters each."""

    params: Tensor  # float32 [L, D]
    target: Tensor  # float32 [L, D], of the target networks; rows of what has none are copies
    m: Tensor  # float32 [L, D], Adam's moments
    v: Tensor
    lr: Tensor  # float64 [L]
    gamma: Tensor  # float32 [L, 1], as tau
    tau: Tensor


class Algorithm:
    """Base class. ``self.nets`` are the padded networks shared by all members, ``self.rows`` their ``AgentRows``."""

    section_class: ClassVar[Type[LearnerSection]] = LearnerSection  # its hyperparameters
    actions: ClassVar[str] = "discrete"  # what it chooses: discrete, continuous or both
    action_columns: ClassVar[int] = 1  # numbers that stand for an action in the replay memory; 0: as many as A
    policy_delay = 1  # decisions between two updates of the actor; the loop passes whether it is due

    def __init__(self, task: Task, hyper: Hyper, nets: Nets, params: Tensor, width: Tensor) -> None:
        """params: float32 [L, D]; width: int64 [L], the actual number of hidden units of each member."""
        self.task, self.section, self.nets, self.width = task, hyper.section, nets, width
        self.columns = self.action_columns or task.num_actions or task.action_size
        self.rows = self.initial_rows(hyper, params)

    @classmethod
    def nets_of(cls, task: Task, section: Any, hidden: int, layers: int) -> Nets:
        """The networks of one member, in the order of its flat vector."""
        raise NotImplementedError

    def initial_rows(self, hyper: Hyper, params: Tensor) -> Any:
        """Fresh ``AgentRows``."""
        raise NotImplementedError

    def common(self, hyper: Hyper, params: Tensor) -> Tuple[Tensor, ...]:
        """Fields of ``AgentRows``, in their order."""
        device = params.device
        return (
            params, params.clone(), torch.zeros_like(params), torch.zeros_like(params), column(hyper, "lr", device),
            column(hyper, "gamma", device).float()[:, None], column(hyper, "tau", device).float()[:, None],
        )  # fmt: skip

    def keep(self, index: Tensor) -> None:
        """Keeps only these members."""
        self.rows, self.width = self.rows.keep(index), self.width[index]

    def take(self, index: Tensor) -> Any:
        """Another algorithm object with copies of these members."""
        other = copy.copy(self)
        other.keep(index)
        return other

    def draws(self, key: Tensor, first: int, count: int) -> Tuple[Tensor, ...]:
        """Random numbers of decisions first .. first + count - 1, each [count, L, ...]. key: int64 [L].

        Decision d uses the counters d W .. d W + W - 1, W being the algorithm's.
        """
        raise NotImplementedError

    def explore(self, obs: Tensor, episode: Tensor, draw: Tuple[Tensor, ...]) -> Tuple[Tensor, Tensor]:
        """Exploring actions. obs [L, 1, F], episode int64 [L], one decision's draws [L, ...] -> action for the world,
        int64 [L, 1] or float32 [L, 1, A], and for the replay buffer, float32 [L, columns]. SAC and TD3 take N
        environments as well: obs [L, N, F] and draws [L, N A] -> [L, N, A] and [L, N A]."""
        raise NotImplementedError

    def greedy(self, obs: Tensor) -> Tensor:
        """Greedy actions. obs [L, N, F] -> int64 [L, N] or float32 [L, N, A]."""
        raise NotImplementedError

    def test_action(self, obs: Tensor, key: Tensor, counter: Tensor) -> Tensor:
        """Actions of a test, by default ``greedy``. key int64 [L] and counter int64 [L, N] serve published tests, which
        explore."""
        return self.greedy(obs)

    def update(
        self, batch: Tensor, weight: Tensor, learns: Tensor, updates: Tensor, noise_key: Tensor, actor: bool
    ) -> None:
        """One update, in place.

        batch: float32 [L, 2 F + columns + 2, B], rows s, s', action, reward, done. weight: float32 [L, B], the share of
        each sample in the loss, 0 for members that do not learn. learns: bool [L]. updates: int64 [L], the number of
        this update, from 1. noise_key: int64 [L], stream UPDATE. actor: the actor's turn (see ``policy_delay``).
        """
        raise NotImplementedError

    def end_episodes(self, index: Tensor) -> None:
        """Marks the begin of the next episode of members ``index``."""

    def split(self, batch: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Splits a batch -> s, s' [L, F, B], action [L, columns, B], reward, done [L, B]."""
        F = self.task.observation_size
        return batch[:, :F], batch[:, F : 2 * F], batch[:, 2 * F : -2], batch[:, -2], batch[:, -1]
