"""``ShapedEnvs`` over a task of managers: many candidates in one environment of mjlab or Isaac Lab."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.managers.environment import CandidateEnv
from envolve.envs.managers.guard import KEPT, Dump, Moment
from envolve.envs.managers.library import NAMES, library_of
from envolve.envs.managers.paths import unknown
from envolve.envs.managers.task import ManagedTask, managed_task
from envolve.envs.physics.task import Pose, Random
from envolve.envs.shaping.calls import RARE, Group, ShaperCalls
from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.envs.shaping.envs import ShapedEnvs, Step
from envolve.envs.shaping.resets import call_own
from envolve.envs.shaping.tally import Tally
from envolve.envs.shaping.widths import find_widths

GOAL, INITIAL_STATE, NUMBERS = 1, 2, 32  # streams of random numbers of candidates' resets; numbers of each


class ManagedEnvs(ShapedEnvs):
    """Same interface and same promises as ``ShapedEnvs``. What differs: candidates see the library's state, the
    task's own shapers are its terms, and a candidate's ``terms`` change their numbers."""

    task: ManagedTask

    def __init__(
        self,
        world: CandidateEnv,
        task: ManagedTask,
        candidates: Sequence[Candidate],
        key: Tensor,
        failures: Dict[int, Failure],
    ) -> None:
        """key: int64 [P]; failures: of candidates that cannot run on this task."""
        self.world, self.task, self.candidates, self.P, self.N = world, task, list(candidates), world.P, world.N
        self.device, self.schedules, self.key = world.device, {}, key
        self.calls = calls = ShaperCalls(task, self.candidates, self.N)
        for i, failure in failures.items():
            calls.fail(i, failure)
        self.live, self.failures = calls.live, calls.failures
        self.steps, self.evaluation = 0, False
        self._diverged: Optional[Tensor] = None
        self._ended = torch.zeros(self.P, self.N, dtype=torch.bool, device=self.device)
        self.t = torch.zeros(self.P, self.N, dtype=torch.int64, device=self.device)
        self.tally = Tally(self.P, self.device)
        self.dumps: List[Dump] = []  # of diverged simulations, the first of each candidate
        self._past: Deque[Moment] = deque(maxlen=KEPT)
        self._earned = torch.zeros(self.P, self.N, dtype=torch.float64, device=self.device)  # in this evaluation
        self._goal: Dict[int, Tensor] = {}  # commands of candidates that set them, [N, G]
        self._poses: List[Tuple[Tensor, Pose]] = []  # of the coming reset
        world.place, world.command = self._place, self._command
        self._begin_all(rng.RESET)
        self.action_sizes, self.observation_sizes = find_widths(task, calls)
        self._allocate()

    # -------------------------------------------------------------------------------------------------------- a run

    def set_clock(self, iteration: int) -> None:
        """The library's curriculum counts the steps itself."""

    def begin(self, evaluation: bool = False, staggered: bool = False) -> Tensor:
        self.evaluation = evaluation
        self._earned.zero_()
        self._ended.zero_()
        self.action.zero_()
        self.previous_action.zero_()
        self._begin_all(rng.FINAL_TEST if evaluation else rng.RESET)
        if staggered:
            self.t += torch.arange(self.N, device=self.device) * self.task.max_steps // self.N
            self.world.env.episode_length_buf[:] = self.t.view(-1)
            self.task.measure()
        self._observe(self.obs)
        return self.obs

    def _begin_all(self, stream: int) -> None:
        """Begins an episode in every environment."""
        self.world.numbers.shaped = not self.evaluation
        self.world.draws.begin(rng.fold(self.key, stream))
        self._stream = stream
        self.t.zero_()
        self._diverged = None
        self._past.clear()
        self._reset_rows(torch.arange(self.world.R, device=self.device))

    def step(self, action: Tensor) -> Step:
        task, calls, world = self.task, self.calls, self.world
        calls.step = self.steps
        self.previous_action.copy_(self.action)
        self.action.copy_(action.reshape(self.P * self.N, -1))
        calls.each("compute_torque", lambda g: (g.state["action"], g.state), self._take_effort)
        self._clean(self.effort.view(self.P, self.N, -1), "compute_torque")
        task.effort.copy_(self.effort)
        world.step(self.effort)  # the task measures itself when rewards are computed
        self.steps += 1
        self.t += 1
        diverged = task.diverged().view(self.P, self.N)
        self._diverged = diverged if bool(diverged.any()) else None
        self._remember()
        score = self._score()
        if not self.evaluation:
            calls.each("compute_reward", lambda g: (g.state,), self._take_reward)
            self._clean(self.reward, "compute_reward")
        self._terminal()
        truncated = world.time_outs.view(self.P, self.N) & ~self.terminated
        task.measure()
        self._observe(self.last_obs)
        self.obs.copy_(self.last_obs)
        over = self.terminated | truncated
        self._ended |= over
        if bool(over.any()):
            self._reset(over)
            self._observe(self.obs, over)
        calls.end_step()
        self.tally.add(score, self.reward, over)
        return Step(self.obs, self.reward, self.terminated, truncated, self.last_obs, score)

    def _score(self) -> Tensor:
        """The task's score of this step, [P, N]. An episode of an evaluation in which the physics diverges is worth
        nothing, or less if it was worth less: a candidate cannot win by blowing up the simulation."""
        score = torch.nan_to_num(self.task.score().view(self.P, self.N))
        if self._diverged is not None:
            lost = self._earned.clamp(max=0) - self._earned if self.evaluation else torch.zeros_like(score)
            score = torch.where(self._diverged, lost, score)
        if self.evaluation:
            self._earned += torch.where(self._ended, torch.zeros_like(score), score)
        return score

    def _terminal(self) -> None:
        if not self.evaluation:
            super()._terminal()
            return
        self.terminated.copy_(self.world.terminated.view(self.P, self.N))
        if self._diverged is not None:
            self.terminated |= self._diverged
        if self.failures:
            self.terminated &= self.live[:, None]

    def _remember(self) -> None:
        """Keeps the last states, and dumps them when a candidate's simulation diverges for the first time."""
        self._past.append(Moment(self.steps, self.task.position, self.task.speed, self.effort.clone()))
        if self._diverged is None:
            return
        known = {dump.candidate for dump in self.dumps}
        for i in (self._diverged.any(1) & self.live).nonzero()[:, 0].tolist():
            name = self.candidates[i].name
            if name not in known:
                n = int(self._diverged[i].nonzero()[0, 0])
                self.dumps.append(Dump.of(self.task.name, name, i * self.N + n, list(self._past), self.evaluation))

    # ------------------------------------------------------------------------------------------------------- resets

    def _reset(self, over: Tensor) -> None:
        ids = over.view(-1).nonzero()[:, 0]
        self.t.view(-1)[ids] = 0
        self.action[ids], self.previous_action[ids] = 0, 0
        self._reset_rows(ids)
        self._diverged = None

    def _reset_rows(self, ids: Tensor) -> None:
        """Begins episodes in environments ids, where the candidates say, or the task's events."""
        self._poses = []
        if not self.evaluation and self.calls.groups:
            self._shape_reset(ids)
        self.task.effort[ids] = 0
        self.world.reset(ids)
        self.task.own_reward = self.task.own_reward.clone()
        self.task.own_reward[ids] = 0
        self.task.own_terminal[ids] = False
        self.task.measure(ids)

    def _shape_reset(self, ids: Tensor) -> None:
        """Goals and poses of the candidates that define them; they see the end of the last episode."""
        if not any(group.own for kind in RARE for group in self.calls.groups[kind]):
            return
        state, owner = self.task.views(self.task.buffer[ids]), ids // self.N

        def take_goal(group: Group, rows: Tensor, out: Tuple[Tensor, ...]) -> None:
            for i in group.members:
                mine = owner[rows] == i
                goal = self._goal.setdefault(i, torch.zeros(self.N, self.task.goal_size, device=self.device))
                goal[ids[rows][mine] % self.N] = out[0][mine].float()

        def take_pose(group: Group, rows: Tensor, out: Tuple[Tensor, ...]) -> None:
            self._poses.append((ids[rows], Pose(*out)))

        goals = self.task.buffer.new_empty(len(ids), self.task.goal_size)
        rest = Pose(*(x[ids] for x in self.task.rest))
        for kind, stream, start, like, take in (
            ("compute_goal", GOAL, None, goals, take_goal),
            ("compute_initial_state", INITIAL_STATE, rest, rest, take_pose),
        ):
            if any(group.own for group in self.calls.groups[kind]):
                call_own(self.calls, kind, owner, state, self._random(stream, ids), start, like, take)

    def _random(self, stream: int, ids: Tensor) -> Random:
        number = (self.steps * self.N + ids % self.N)[:, None] * NUMBERS + torch.arange(NUMBERS, device=self.device)
        key = rng.fold(rng.fold(self.key, self._stream), stream)[ids // self.N][:, None]
        return Random(rng.uniform(key, number), rng.normal(rng.fold(key, stream), number))

    def _place(self, ids: Tensor) -> None:
        for rows, pose in self._poses:
            self.task.put(rows, pose)

    def _command(self) -> None:
        if self.evaluation:
            return
        for i, goal in self._goal.items():
            if i not in self.failures:
                self.task.set_commands(torch.arange(i * self.N, (i + 1) * self.N, device=self.device), goal)


def make_managed_envs(
    task: str,
    candidates: Sequence[Candidate],
    num_envs: int,
    key: Union[int, Sequence[int]],
    device: str = "cpu",
    engine: str = NAMES[0],
    make: Any = None,
) -> ManagedEnvs:
    """Environments of a task of managers; arguments as of ``agents.shaped.training.make_envs``. make: see
    ``CandidateEnv``. Raises SimulatorError."""
    library = library_of(task, engine)
    cls = managed_task(library.find_task(task), library.name)
    keys = [key] * len(candidates) if isinstance(key, int) else list(key)
    cfg, failures = library.configuration(cls.own_name, 1), {}
    numbers: List[Dict[str, float]] = []
    for i, candidate in enumerate(candidates):
        wrong = unknown(candidate.term_names, cfg, cls.own_name)
        if wrong is not None:
            failures[i] = Failure("CannotLoad", wrong, "", -1)
        numbers.append({} if wrong is not None else candidate.term_numbers())
    keys_of = torch.tensor(keys, dtype=torch.int64, device=device)
    world = CandidateEnv(library, cls.own_name, numbers, num_envs, rng.fold(keys_of, rng.RESET), device, make)
    try:
        world.reset(torch.arange(world.R, device=world.device))
        return ManagedEnvs(world, cls(world), candidates, keys_of, failures)
    except BaseException:
        world.close()
        raise


__all__ = ["ManagedEnvs", "ShaperCalls", "make_managed_envs"]
