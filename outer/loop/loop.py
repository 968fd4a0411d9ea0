"""The one loop that asks a search, evaluates and tells it: ``Loop``.

An evolution chooses four parts and runs the loop:

search     what is asked and told: NES, or what has its ``ask`` and ``tell`` (``AskTell``)
target     what a vector means: where it begins, which numbers may move, which members a population has
evaluator  members in, scores out: ``outer/evaluate/members.py`` through an engine, or a simulator of one's own
keeper     what a generation leaves on disk, and from where an interrupted loop goes on

A generation has a fixed order. Everything in it may be interrupted, and the interrupted generation is repeated::

    ask -> members -> evaluate (or what the keeper knows) -> repair failed scores -> hooks ``before``
        -> keeper.evaluated -> tell -> keeper.told -> hooks ``after``

Worlds and shapers (``outer/run.py``), starts and goals (``outer/goals/evolution.py``) and the numbers of a graph
(``llm/tune.py``) are evolved by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch import Tensor

from envolve.outer.evaluate.members import Values, worst_for_failed
from envolve.outer.search.nes import Population


@dataclass(frozen=True)
class Evaluated:
    """What the evaluation of M members gave."""

    scores: np.ndarray  # float64 [M], NaN where a member failed
    steps: int  # of the environment, of all members together
    reasons: Sequence[str] = ()  # [M], why a member failed, "" where it did not
    values: Values = field(default_factory=dict)  # name -> [M, ...], all that workers returned

    @classmethod
    def of(cls, values: Values, reasons: list[str]) -> Evaluated:
        """From what ``evaluate_members`` returns."""
        return cls(values["score"], int(values["train_steps"].sum()), reasons, values)


@dataclass
class Generation:
    """One generation between ``ask`` and its end. P members were asked for, M >= P were evaluated."""

    number: int  # users count from 1
    members: Population  # [M]: the P of the search, then those that the target added
    asked: int  # P
    found: Evaluated  # [M]
    scores: np.ndarray  # float64 [P], finite: a failed member has the worst score of the others, 0 if all failed
    failed: np.ndarray  # bool [P]
    last: bool  # the loop ends with this generation; hooks may set it
    solved: bool = False  # the target's mark is reached, and confirmed; hooks set it
    confirmed: list[tuple[Population, Evaluated]] = field(default_factory=list)  # agents that hooks asked for
    instead: Callable[[], None] | None = None  # what a hook does with the search instead of telling it the scores
    seconds: float = 0.0  # wall time until the keeper has its state


class AskTell(Protocol):
    """What the loop needs of a search. ``outer/search/strategy.py`` has what a run needs beside it."""

    def ask(self) -> Population:
        """The members of the next generation, [P]."""

    def tell(self, scores: np.ndarray) -> None:
        """scores: float64 [P] in the order of ``ask``, higher is better. Counts the generation."""


class Target(Protocol):
    """What is evolved: a flat vector and its meaning."""

    def begin(self, seed: int) -> Tensor:
        """Fresh vector, float32 [D]."""

    def mask(self) -> Tensor:
        """float32 [D], 1 where the search may change a number."""

    def members(self, population: Population) -> Population:
        """From what was asked for, [P], to what is evaluated, [M]: the same members in the same order, and more."""


class Keeper(Protocol):
    """What generations leave, and what an earlier process left of them."""

    def known(self, number: int) -> Evaluated | None:
        """What an earlier process evaluated of a generation that this one's search must be told; None: nothing."""

    def evaluated(self, generation: Generation) -> None:
        """Writes what the evaluation cost, before the search is told."""

    def told(self, generation: Generation) -> None:
        """Writes the state from which the next generation goes on."""


Evaluator = Callable[[int, Population], Evaluated]  # number of the generation, members [M] -> of these
Hook = Callable[[Generation], None]


class Loop:
    """``run()`` makes all generations that are left."""

    def __init__(
        self,
        search: AskTell,
        target: Target,
        evaluate: Evaluator,
        keeper: Keeper,
        generations: int,
        done: int = 0,
        finished: bool = False,
        before: Sequence[Hook] = (),
        after: Sequence[Hook] = (),
        tells_failures: bool = False,
    ) -> None:
        """done: generations that an earlier process has made. finished: it has ended before the last one. before:
        hooks between evaluation and ``tell``, in this order; they may change ``last``, ``solved``, ``confirmed`` and
        ``instead``. after: hooks that see a finished generation. tells_failures: the search is told NaN where a member
        failed, not the worst score."""
        self.search, self.target, self.evaluate, self.keeper = search, target, evaluate, keeper
        self.generations, self.done, self.finished = generations, done, finished or done >= generations
        self.before, self.after, self.tells_failures = before, after, tells_failures

    def run(self, enough: Callable[[], bool] = lambda: False) -> bool:
        """Generations until the last one, or until ``enough`` before one of them -> whether the loop is finished."""
        while not self.finished and not enough():
            self.generation()
        return self.finished

    def generation(self) -> Generation:
        """One generation."""
        began, number = time.monotonic(), self.done + 1
        population = self.search.ask()
        members, asked = self.target.members(population), len(population.seeds)
        found = self.keeper.known(number) or self.evaluate(number, members)
        scores, failed = worst_for_failed(found.scores[:asked])
        g = Generation(number, members, asked, found, scores, failed, number >= self.generations)
        for hook in self.before:
            hook(g)
        self.keeper.evaluated(g)
        if g.instead is not None:
            g.instead()
        else:
            self.search.tell(found.scores[:asked] if self.tells_failures else scores)
        g.seconds = time.monotonic() - began
        self.keeper.told(g)
        self.done, self.finished = number, g.last
        for hook in self.after:
            hook(g)
        return g
