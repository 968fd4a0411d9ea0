"""Many candidates in one simulator: P ways to shape a task, N environments each, stepped together.

Environment i belongs to candidate i // N. One physics step serves all; then every candidate's functions see its own
rows of the state, after that step. Episodes end environment by environment and begin again in the same step.

What a candidate experiences depends on its functions and the key alone, not on the other candidates: the engine's
environments are independent, functions see only their own rows, and random numbers are drawn by
(the candidate's key, control step, environment within the candidate).
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.physics.task import PhysicsTask, State
from envolve.envs.shaping.calls import Group, ShaperCalls
from envolve.envs.shaping.candidate import Candidate, Failure, check_reward, check_tensor, check_terminal
from envolve.envs.shaping.resets import Resets
from envolve.envs.shaping.schedule import Schedule
from envolve.envs.shaping.tally import Tally
from envolve.envs.shaping.trials import split_what_mixes, weigh
from envolve.envs.shaping.widths import check_effort, find_widths


class Step(NamedTuple):
    """Result of one control step. Buffers: the next step overwrites them."""

    obs: Tensor  # float32 [P, N, F_max], what the next decision sees; a candidate's own columns, then zeros
    reward: Tensor  # float32 [P, N]
    terminated: Tensor  # bool [P, N]
    truncated: Tensor  # bool [P, N], by the time limit
    last_obs: Tensor  # float32 [P, N, F_max], the observation the step led to, before any reset
    score: Tensor  # float64 [P, N], the task's true score of this step


class ShapedEnvs:
    """P candidates with N environments each. ``begin`` starts all episodes, ``step`` advances them.

    ``failures`` tells which candidates are out and why; the rows of those are zeros. ``schedules`` drive the task's
    parameters (``set_clock``); while candidates are evaluated, parameters are the task's own.
    """

    def __init__(
        self,
        task: PhysicsTask,
        candidates: Sequence[Candidate],
        key: Union[int, Sequence[int]],
        schedules: Optional[Dict[str, Schedule]] = None,
    ) -> None:
        """key: of all random numbers, one for every candidate or [P]. Raises ValueError if the simulator's environments
        cannot be shared equally, or a schedule drives what the task does not have."""
        self.task, self.candidates, self.P = task, list(candidates), len(candidates)
        if self.P == 0 or task.num_envs % self.P:
            raise ValueError(f"{task.num_envs} environments for {self.P} candidates: expected a multiple")
        self.N = task.num_envs // self.P
        self.device = task.sim.device
        self.schedules = schedules or {}
        for name in self.schedules:
            if name not in task.parameters:
                raise ValueError(
                    f"{task.name} has no parameter {name!r} to schedule; it has {', '.join(task.parameters)}"
                )
        keys = [key] * self.P if isinstance(key, int) else list(key)
        self.key = torch.tensor(keys, dtype=torch.int64, device=self.device)  # [P]
        self.calls = calls = ShaperCalls(task, self.candidates, self.N)
        for i, candidate in enumerate(self.candidates):
            if candidate.term_names:
                reason = f"{task.name} has no terms to change ({candidate.term_names[0]}): tasks of managers have"
                calls.fail(i, Failure("CannotLoad", reason, "", -1))
        self.live, self.failures = calls.live, calls.failures
        self.steps = 0  # control steps since creation
        self.evaluation = False
        self._diverged: Optional[Tensor] = None  # bool [P, N], in this step
        self._ended = torch.zeros(self.P, self.N, dtype=torch.bool, device=self.device)  # and not begun again
        self.t = torch.zeros(self.P, self.N, dtype=torch.int64, device=self.device)
        self.tally = Tally(self.P, self.device)
        self.resets = Resets(task, calls, rng.fold(self.key, rng.RESET))
        self.resets.begin(torch.arange(task.num_envs, device=self.device), 0, shaped=False)
        self.action_sizes, self.observation_sizes = find_widths(task, calls)
        self._allocate()

    def _allocate(self) -> None:
        P, N, device = self.P, self.N, self.device
        A, F = max(self.action_sizes), max(self.observation_sizes)
        self.action, self.previous_action = torch.zeros(P * N, A, device=device), torch.zeros(P * N, A, device=device)
        self.effort = torch.zeros(P * N, len(self.task.sim.actuators), device=device)
        self.effort_limit = self.task.sim.effort_limit.to(self.effort.dtype)
        self.obs, self.last_obs = torch.zeros(P, N, F, device=device), torch.zeros(P, N, F, device=device)
        self.reward = torch.zeros(P, N, device=device)
        self.terminated = torch.zeros(P, N, dtype=torch.bool, device=device)
        self.calls.form_groups(self.action, self.previous_action, self.action_sizes, self.observation_sizes)
        self.action.copy_(2 * rng.uniform(self.key[:1], torch.arange(A * P * N, device=device)).view(P * N, A) - 1)
        weigh(self.calls)
        split_what_mixes(self.calls)
        self.action.zero_()

    # -------------------------------------------------------------------------------------------------------- a run

    def set_clock(self, iteration: int) -> None:
        """Moves the scheduled parameters to this iteration; episodes that begin from now on use them."""
        for name, schedule in self.schedules.items():
            low, high = schedule(iteration)
            self.task.ranges[name] = self.task.parameters[name]._replace(low=low, high=high)

    def begin(self, evaluation: bool = False, staggered: bool = False) -> Tensor:
        """Begin an episode everywhere -> obs. evaluation: with the task's own initial states, goals, terminations and
        parameters; every environment plays one episode, what follows its end means nothing, and there is no reward.
        staggered: these first episodes reach the time limit one by one, not all at once, so that a short rollout shows
        every stage of them."""
        self.evaluation = evaluation
        self.resets.key = rng.fold(self.key, rng.FINAL_TEST if evaluation else rng.RESET)
        if evaluation:
            self.task.ranges = dict(self.task.parameters)
        self._reset(torch.ones(self.P, self.N, dtype=torch.bool, device=self.device))
        if staggered:
            self.t += torch.arange(self.N, device=self.device) * self.task.max_steps // self.N
            self.task.state["progress"].copy_(self.t.view(-1))
        self._observe(self.obs)
        return self.obs

    def step(self, action: Tensor) -> Step:
        """Makes one control step. action: float32 [P, N, A_max]."""
        task, calls = self.task, self.calls
        calls.step = self.steps
        task.before_step()
        self.previous_action.copy_(self.action)
        self.action.copy_(action.reshape(self.P * self.N, -1))
        calls.each("compute_torque", lambda g: (g.state["action"], g.state), self._take_effort)
        self._clean(self.effort.view(self.P, self.N, -1), "compute_torque")
        task.sim.set_effort(self.effort)
        task.sim.awake = self._awake()
        task.sim.step(task.substeps)
        self.steps += 1
        self.t += 1
        task.state["torque"].copy_(torch.minimum(torch.maximum(self.effort, -self.effort_limit), self.effort_limit))
        task.state["progress"].copy_(self.t.view(-1))
        task.measure()
        task.after_step()
        unstable = task.sim.unstable.view(self.P, self.N)
        self._diverged = unstable if unstable.any() else None
        score = task.score().view(self.P, self.N)
        if self._diverged is not None:  # its state means nothing
            score = torch.where(self._diverged, task.score_after_end().view(self.P, self.N), score)

        if not self.evaluation:
            calls.each("compute_reward", lambda g: (g.state,), self._take_reward)
            self._clean(self.reward, "compute_reward")
        self._terminal()
        truncated = (self.t >= task.max_steps) & ~self.terminated
        self._observe(self.last_obs)
        self.obs.copy_(self.last_obs)
        over = self.terminated | truncated
        self._ended |= over
        if not self.evaluation and over.any():
            self._reset(over)
            self._observe(self.obs, over)
        calls.end_step()
        self.tally.add(score, self.reward, over)
        return Step(self.obs, self.reward, self.terminated, truncated, self.last_obs, score)

    def _awake(self) -> Optional[Tensor]:
        """Environments that still matter: not those of failed candidates nor, in an evaluation, of ended episodes."""
        idle = self._ended | ~self.live[:, None]
        return (~idle).view(-1).nonzero()[:, 0] if idle.any() else None

    # ------------------------------------------------------------------------------------------- what functions return

    def _take_effort(self, group: Group, out: Any) -> None:
        self.effort[group.rows] = check_effort(self.task, group, out)

    def _take_reward(self, group: Group, out: Any) -> None:
        reward, components = check_reward(out, group.rows.stop - group.rows.start)
        self.reward.view(-1)[group.rows] = reward
        self.tally.add_components(group.members, {k: part.view(-1, self.N).mean(1) for k, part in components.items()})

    def _terminal(self) -> None:
        def deliver(group: Group, out: Any) -> None:
            self.terminated.view(-1)[group.rows] = check_terminal(out, group.rows.stop - group.rows.start)

        if self.evaluation:
            self.terminated.copy_(self.task.compute_terminal(self.task.state).view(self.P, self.N))
        else:
            self.calls.each("compute_terminal", lambda g: (g.state,), deliver)
        if self._diverged is not None:
            self.terminated |= self._diverged
        if self.failures:
            self.terminated &= self.live[:, None]

    def _observe(self, into: Tensor, only: Optional[Tensor] = None) -> None:
        """Writes observations into: [P, N, F_max]; only: bool [P, N], just for candidates with one of these."""
        wanted = None if only is None else only.any(1).tolist()

        def arguments(group: Group) -> Optional[Tuple[State]]:
            return (group.state,) if wanted is None or any(wanted[i] for i in group.members) else None

        def deliver(group: Group, out: Any) -> None:
            n, F = group.rows.stop - group.rows.start, self.observation_sizes[group.members[0]]
            out = check_tensor("compute_observation", out, (n, F))
            into[group.members.start : group.members.stop, :, :F] = out.view(-1, self.N, F)

        self.calls.each("compute_observation", arguments, deliver)
        self._clean(into, "compute_observation")

    def _clean(self, values: Tensor, kind: str) -> None:
        """Zeroes values [P, N] or [P, N, _] of diverged environments and failed candidates; a candidate with a number
        that is not finite fails now."""
        if kind != "compute_torque" and self._diverged is not None:
            values.masked_fill_(self._diverged if values.dim() == 2 else self._diverged[:, :, None], 0)
        out = len(self.failures)
        self._silence(values)
        self.calls.check_finite(values, kind)
        if len(self.failures) > out:
            self._silence(values)

    def _silence(self, values: Tensor) -> None:
        if self.failures:
            values.masked_fill_(~self.live.view((-1,) + (1,) * (values.dim() - 1)), 0)

    def _reset(self, over: Tensor) -> None:
        """Begins new episodes where ``over``, bool [P, N]."""
        ids = over.view(-1).nonzero()[:, 0]
        self.resets.begin(ids, self.steps, shaped=not self.evaluation)
        self.t.view(-1)[ids] = 0
        self._ended.view(-1)[ids] = False
        self.action[ids], self.previous_action[ids] = 0, 0
        self._diverged = None
