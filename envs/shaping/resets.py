"""Resets of episodes: parameters, goals and initial states, from the candidates or the task."""

from __future__ import annotations

from typing import Any, Callable, Optional, Set, Tuple

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.physics.task import PhysicsTask, Pose, Random, State
from envolve.envs.shaping.calls import Group, ShaperCalls
from envolve.envs.shaping.candidate import WrongOutput, check_tensor
from envolve.envs.sim.simulator import PROPERTIES

GOAL, INITIAL_STATE, PARAMETERS = 1, 2, 3  # streams of random numbers


Take = Callable[[Group, Tensor, Tuple[Tensor, ...]], None]


def call_own(
    calls: ShaperCalls,
    kind: str,
    owner: Tensor,
    state: State,
    random: Random,
    rest: Optional[Pose],
    like: Any,
    take: Take,
) -> None:
    """Calls every candidate's own function of goals or initial states for its environments among K that begin.

    owner: int64 [K], the candidates of those environments; state, random and, for initial states, rest: theirs; like: a
    goal [K, G] or a Pose, whose shapes results must have; take: gets the group, its rows of the K, and the results, one
    for a goal and three for a pose."""
    at = torch.arange(len(owner), device=owner.device)

    def rows_of(group: Group) -> Tensor:
        return at[(owner >= group.members.start) & (owner < group.members.stop)]

    def arguments(group: Group) -> Optional[Tuple[Any, ...]]:
        rows = rows_of(group)
        if not group.own or not len(rows):
            return None
        part = {name: tensor[rows] for name, tensor in state.items()}
        drawn = Random(random.uniform[rows], random.normal[rows])
        return (part, drawn) if rest is None else (part, drawn, Pose(*(x[rows] for x in rest)))

    def deliver(group: Group, out: Any) -> None:
        rows = rows_of(group)
        outs, expected = ((out,), (like,)) if isinstance(like, Tensor) else (out, like)
        if not isinstance(outs, tuple) or len(outs) != len(expected):
            raise WrongOutput(f"{kind} returned {type(out).__name__}, expected a {type(like).__name__}")
        for new, old in zip(outs, expected):
            check_tensor(kind, new, (len(rows), *old.shape[1:]))
            if not torch.isfinite(new).all():
                raise WrongOutput(f"{kind} returned a number that is not finite")
        take(group, rows, outs)

    calls.each(kind, arguments, deliver)


class Resets:
    """Begins episodes of P candidates with N environments each."""

    def __init__(self, task: PhysicsTask, calls: ShaperCalls, key: Tensor) -> None:
        """key: int64 [P], random keys; may be replaced."""
        self.task, self.calls, self.N, self.key = task, calls, calls.N, key
        self.step = 0  # control steps of the run
        self._moved: Set[str] = set()  # properties of the engine that are no longer what the model has

    def begin(self, ids: Tensor, step: int, shaped: bool) -> None:
        """Begin episodes in environments ids, int64 [K], after ``step`` control steps of the run. shaped: with the
        candidates' goals and initial states, else with the task's own."""
        self.step, task = step, self.task
        self._draw_parameters(ids)
        state = task.views(task.buffer[ids])
        drawn, rest = self._random(GOAL, ids), Pose(*(part.expand(len(ids), *part.shape) for part in task.rest))
        goal = task.compute_goal(state, drawn)
        if goal is not None:
            goal = self._shaped(goal, "compute_goal", ids, state, drawn, None) if shaped else goal
            state["goal"].copy_(goal)
            task.state["goal"][ids] = state["goal"]
        drawn = self._random(INITIAL_STATE, ids)
        pose = task.compute_initial_state(state, drawn, rest)
        if shaped:
            pose = self._shaped(pose, "compute_initial_state", ids, state, drawn, rest)
        task.sim.set_state(ids, *task.place(pose, goal))
        task.state["progress"][ids] = 0
        task.state["torque"][ids] = 0
        task.measure()
        task.after_reset(ids)

    def _random(self, stream: int, ids: Tensor) -> Random:
        """Random numbers of resets of environments ids [K]: the same count for every control step, so that an episode's
        numbers depend only on its time and environment."""
        R = self.task.random_numbers
        number = (self.step * self.N + ids % self.N)[:, None] * R + torch.arange(R, device=self.task.sim.device)
        key = rng.fold(self.key, stream)[ids // self.N][:, None]
        return Random(rng.uniform(key, number), rng.normal(rng.fold(key, stream), number))

    def _shaped(self, default: Any, kind: str, ids: Tensor, state: State, random: Random, rest: Optional[Pose]) -> Any:
        """Rows of ``default`` (a goal or a pose of environments ids), replaced for candidates with a function."""
        if not any(group.own for group in self.calls.groups[kind]):
            return default
        default = default.clone() if isinstance(default, Tensor) else Pose(*(part.clone() for part in default))

        def take(group: Group, rows: Tensor, outs: Tuple[Tensor, ...]) -> None:
            for new, old in zip(outs, (default,) if isinstance(default, Tensor) else default):
                old[rows] = new.to(old.dtype)

        call_own(self.calls, kind, ids // self.N, state, random, rest, default, take)
        return default

    def _draw_parameters(self, ids: Tensor) -> None:
        """New values of the task's parameters for episodes of environments ids."""
        if not len(ids):
            return
        u = self._random(PARAMETERS, ids).uniform
        for column, (name, p) in enumerate(self.task.ranges.items()):
            value = p.low + (p.high - p.low) * u[:, column]
            self.task.state[name][ids] = value
            moved = p.low != p.high or p != self.task.parameters[name]
            if name in PROPERTIES and (moved or name in self._moved):  # else it is what the model has
                self._moved.add(name)
                if name == "gravity":
                    value = torch.stack((torch.zeros_like(value), torch.zeros_like(value), -value), 1)
                self.task.sim.set_property(name, ids, value)
