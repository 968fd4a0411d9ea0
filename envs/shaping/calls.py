"""Calls the candidates' functions, each on its own rows of the state, and keeps a bad one from harming the others.

Neighbours that share a function (the task's own, or one file with other params) are called at once. A candidate is out
from the moment at which its function raises, returns the wrong shape or type or a number that is not finite, changes
the state that it was given, hangs, or costs far too much. No clock on the wall has a say in that: what a function that
is Python costs is counted before the run (envs/shaping/trials.py), what counting cannot see is judged by CPU time with
limits that are far away, and a hang by what the thread does (envs/shaping/alarm.py). A graph always ends and is counted
when it is planned (envs/graph/plan.py), so nothing of it is timed.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from envolve.envs.graph.check import GraphError
from envolve.envs.graph.ir import GraphFunction
from envolve.envs.physics.task import SHAPER_TYPES, PhysicsTask, State
from envolve.envs.shaping.alarm import Alarm, Hang
from envolve.envs.shaping.candidate import Candidate, Failure, Shaper, WrongOutput, failure_of, tell_other_task

log = logging.getLogger("envolve")
RARE = ("compute_initial_state", "compute_goal")  # called for the environments that begin an episode, one by one
WINDOW = 32  # steps over which the least CPU time is each candidate's
SLOW_SECONDS, SLOW_FACTOR = 0.1, 500.0  # of CPU time per step, times the task's own functions: above both is too slow


class Group(NamedTuple):
    """Neighbouring candidates that share one function."""

    kind: str
    shaper: Shaper
    members: range
    rows: slice
    action_size: int
    state: State  # views of the rows
    params: Optional[Tensor]  # [n, D]
    own: bool  # a candidate's function, not the task's


class ShaperCalls:
    """Functions of P candidates over N environments each."""

    def __init__(self, task: PhysicsTask, candidates: Sequence[Candidate], N: int) -> None:
        self.task, self.candidates, self.N, self.P = task, candidates, N, len(candidates)
        self.live = torch.ones(self.P, dtype=torch.bool, device=task.sim.device)
        self.failures: Dict[int, Failure] = {}
        self.step = -1  # control steps into the run, for the records of failures
        self.groups: Dict[str, List[Group]] = {}
        self._time = np.zeros(self.P)  # CPU seconds in this step
        self._fastest, self._steps = np.full(self.P, np.inf), 0
        self._asleep, self._before = np.zeros(self.P, np.int64), np.zeros(self.P, np.int64)  # ticks; a step ago
        self.alarm = Alarm()
        if not self.alarm.works:
            log.warning("not on the main thread: a candidate whose function hangs cannot be interrupted")
        tell_other_task(candidates, task.name)
        for i, candidate in enumerate(candidates):
            if candidate.failure is not None:
                self.fail(i, candidate.failure)

    # ------------------------------------------------------------------------------------------------------- groups

    def shaper(self, i: int, kind: str) -> Shaper:
        return self.candidates[i].shapers.get(kind) or Shaper(getattr(self.task, kind), False)

    def rows(self, members: range) -> slice:
        return slice(members.start * self.N, members.stop * self.N)

    def state_of(self, members: range, action: Tensor, previous: Tensor, action_size: int) -> State:
        """Arguments of the functions: views, made once. action, previous: [P N, A_max]."""
        rows = self.rows(members)
        state = {name: tensor[rows] for name, tensor in self.task.state.items()}
        state["action"], state["previous_action"] = action[rows, :action_size], previous[rows, :action_size]
        return state

    def group(self, kind: str, members: range, action: Tensor, previous: Tensor, action_size: int) -> Group:
        candidate = self.candidates[members.start]
        shaper, params = self._with_numbers(kind, members, action.device)
        state = self.state_of(members, action, previous, action_size)
        return Group(kind, shaper, members, self.rows(members), action_size, state, params, kind in candidate.shapers)

    def _with_numbers(self, kind: str, members: range, device: torch.device) -> Tuple[Shaper, Optional[Tensor]]:
        """Function that members share and its params [n, D], if it takes any. If all members have the same numbers, a
        graph has them folded in, which is faster."""
        shaper = self.shaper(members.start, kind)
        if not shaper.takes_params:
            return shaper, None
        own = torch.stack([self._params(i, kind) for i in members])
        if isinstance(shaper.function, GraphFunction) and bool((own == own[0]).all()):
            return Shaper(shaper.function.bind(own[0].tolist()), False), None
        return shaper, own.repeat_interleave(self.N, 0).to(device)

    def _params(self, i: int, kind: str) -> Tensor:
        """Parameters of candidate i's function of this kind, [D]."""
        params, columns = self.candidates[i].params, self.shaper(i, kind).columns
        assert params is not None
        return params if columns is None else params[list(columns)]

    def form_groups(self, action: Tensor, previous: Tensor, action_sizes: Sequence[int], sizes: Sequence[int]) -> None:
        """Runs of live neighbours with the same function, width of action and, for observations, size."""
        for kind in SHAPER_TYPES:
            groups, first = [], 0
            while first < self.P:
                last = first + 1
                while last < self.P and self._alike(first, last, kind, action_sizes, sizes):
                    last += 1
                if first not in self.failures:
                    groups.append(self.group(kind, range(first, last), action, previous, action_sizes[first]))
                first = last
            self.groups[kind] = groups

    def _alike(self, a: int, b: int, kind: str, action_sizes: Sequence[int], sizes: Sequence[int]) -> bool:
        if kind in RARE and kind in self.candidates[a].shapers:
            return False
        return (
            (a in self.failures) == (b in self.failures)
            and self.shaper(a, kind)[:2] == self.shaper(b, kind)[:2]
            and action_sizes[a] == action_sizes[b]
            and (kind != "compute_observation" or sizes[a] == sizes[b])
        )

    def split(self, group: Group) -> List[Group]:
        """Splits a group into its live members."""
        parts, groups = self.parts(group), self.groups[group.kind]
        at = groups.index(group)
        groups[at : at + 1] = parts
        return parts

    def parts(self, group: Group) -> List[Group]:
        """Live members as groups of one."""
        n, state = self.N, group.state
        parts = []
        for k, i in enumerate(group.members):
            if i in self.failures:
                continue
            part = slice(k * n, (k + 1) * n)
            members = range(i, i + 1)
            shaper, params = self._with_numbers(group.kind, members, state["action"].device)
            parts.append(
                group._replace(
                    shaper=shaper,
                    members=members,
                    rows=self.rows(members),
                    params=params,
                    state={name: tensor[part] for name, tensor in state.items()},
                )
            )
        return parts

    # -------------------------------------------------------------------------------------------------------- calls

    def each(
        self, kind: str, arguments: Callable[[Group], Optional[Sequence[Any]]], deliver: Callable[..., None]
    ) -> None:
        """Call every group's function of this kind with ``arguments(group)`` (None: not this one) and hand what it
        returns to ``deliver(group, out)``, which raises WrongOutput if it is not what it should be."""
        with self.alarm.on():
            for group in list(self.groups[kind]):
                given = arguments(group)
                if given is None or not self._call(group, given, deliver):
                    continue
                for part in self.split(group):  # a group that failed: one by one, to find the faulty candidate
                    given = arguments(part)
                    if given is not None:
                        self._call(part, given, deliver)

    def one(self, group: Group, arguments: Sequence[Any], deliver: Callable[..., None]) -> None:
        """Same as ``each``, for a group of one candidate."""
        with self.alarm.on():
            self._call(group, arguments, deliver)

    def _call(self, group: Group, arguments: Sequence[Any], deliver: Callable[..., None]) -> bool:
        """Calls a group's function. Returns whether the group must be split. Exceptions of the task's own functions are
        raised."""
        function, buffer = group.shaper.function, self.task.buffer
        if not group.own:
            deliver(group, function(*arguments))
            return False
        given = list(arguments)
        if group.shaper.takes_params:
            assert group.params is not None
            # a reset is given the rows that begin anew; there all are of one candidate, whose params are alike
            rows = next(len(a["progress"]) for a in arguments if isinstance(a, dict))
            given.append(group.params[:rows])
        version, action_version = buffer._version, group.state["action"]._version
        first, members = group.members[0], slice(group.members.start, group.members.stop)
        began = time.thread_time()
        try:
            out = self.timed(function, given, int(self._asleep[first]))
            if buffer._version != version or group.state["action"]._version != action_version:
                raise WrongOutput(f"{group.kind} changed the state that it was given (work on a copy: x.clone())")
            deliver(group, out)
        except (Exception, SystemExit) as e:  # whatever a candidate raises
            if len(group.members) > 1:
                return True
            self.fail_by(first, e, function)
        except Hang as e:
            self.fail_by_hang(group, e)
        if is_python(group):
            self._time[members] += (time.thread_time() - began) / len(group.members)
            self._asleep[members] = self.alarm.asleep
        return False

    def fail_by(self, i: int, error: BaseException, function: Callable[..., Any]) -> None:
        if isinstance(error, WrongOutput):
            kind = "ChangedState" if "changed the state" in str(error) else "WrongOutput"
            self.fail(i, Failure(kind, str(error), "", self.step))
        elif isinstance(error, GraphError):  # a graph has no lines of its own
            self.fail(i, Failure("GraphError", str(error), "", self.step))
        else:
            self.fail(i, failure_of(error, function.__code__.co_filename, self.step))

    def fail_by_hang(self, group: Group, error: Hang) -> None:
        for i in group.members:
            self.fail(i, Failure("TooSlow", f"{group.kind} was interrupted {error}", "", self.step))

    def timed(self, function: Callable[..., Any], given: Sequence[Any], asleep: int = 0) -> Any:
        """Result of the function; raises ``Hang`` if it does not end. Call within ``alarm.on``. asleep: see
        ``Alarm.call``."""
        if isinstance(function, GraphFunction):  # what torch imports for its first plan is never broken off
            return function(*given)
        return self.alarm.call(function, given, asleep)

    # ----------------------------------------------------------------------------------------------------- failures

    def fail(self, i: int, failure: Failure) -> None:
        """Marks candidate i as failed."""
        if i in self.failures:
            return
        self.failures[i] = failure
        self.live[i] = False
        log.warning("candidate %s is out: %s", self.candidates[i].name, failure)
        for kind, groups in self.groups.items():
            self.groups[kind] = [g for g in groups if any(j not in self.failures for j in g.members)]

    def check_finite(self, values: Tensor, kind: str) -> None:
        """Fails candidates with a value that is not finite. values: [P, ...] of this kind."""
        finite = torch.isfinite(values)
        if finite.all():
            return
        bad = ~finite.flatten(1).all(1)
        for i in bad.nonzero()[:, 0].tolist():
            where = tuple((~finite[i]).nonzero()[0].tolist())
            value = float(values[i][where])
            place = f" in column {where[1]}" if len(where) > 1 else ""
            text = f"{kind} returned {value}{place}, for {int((~finite[i]).sum())} of {finite[i].numel()} numbers"
            self.fail(i, Failure("NotFinite", text, "", self.step))

    def end_step(self) -> None:
        """Checks for slow candidates, once a step."""
        self._asleep[self._asleep <= self._before] = 0  # candidates that did not sleep in this step are awake
        self._before[:] = self._asleep
        self._fastest = np.minimum(self._fastest, self._time)
        self._time[:] = 0
        self._steps += 1
        if self._steps % WINDOW:
            return
        slow = [i for i in range(self.P) if i not in self.failures and self._fastest[i] > SLOW_SECONDS]
        usual = self._usual_seconds() if slow else 0.0
        for i in slow:
            took = self._fastest[i]
            if took > SLOW_FACTOR * usual:
                text = f"its functions take {1e3 * took:.3g} ms of CPU time per step"
                text += f", the task's own {1e3 * usual:.3g} ms"
                self.fail(i, Failure("TooSlow", text, "", self.step))
        self._fastest[:] = np.inf

    def _usual_seconds(self) -> float:
        """CPU time of the task's own functions for the environments of one candidate, the least of several
        measurements."""
        task, action = self.task, torch.zeros(self.N, self.task.action_size, device=self.task.sim.device)
        state = self.state_of(range(1), action, action, task.action_size)
        least = np.inf
        for _ in range(WINDOW):
            began = time.thread_time()
            for kind in [k for k in SHAPER_TYPES if k not in RARE]:
                getattr(task, kind)(*[action] * (kind == "compute_torque"), state)
            least = min(least, time.thread_time() - began)
        return float(least)


def is_python(group: Group) -> bool:
    """True if the function is a candidate's and not a graph."""
    return group.own and not isinstance(group.shaper.function, GraphFunction)
