"""Many candidates in one simulator: P ways to shape a task, N environments each, stepped together.

Environment i belongs to candidate i // N. One physics step serves all; then every candidate's functions see its own
rows of the state, after that step. Episodes end environment by environment and begin again in the same step.

What a candidate experiences depends on its functions and the key alone, not on who else is there: the engine's
environments are independent, functions see only their own rows, and random numbers are drawn by
(the candidate's key, control step, environment within the candidate).
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

import torch
from torch import Tensor

from envs import rng
from envs.physics.task import PhysicsTask, Pose, Random, State
from envs.schedule import Schedule
from envs.shaper_calls import Group, Hang, ShaperCalls
from envs.shaping import Candidate, Failure, WrongOutput, check_reward, check_tensor, check_terminal
from envs.sim.simulator import PROPERTIES

GOAL, INITIAL_STATE, PARAMETERS = 1, 2, 3  # streams within that of resets
MOST_ACTIONS = 128  # widths that are tried to find that of a candidate's actions


class Step(NamedTuple):
    """What one control step led to. Buffers: the next step overwrites them."""

    obs: Tensor  # float32 [P, N, F_max], what the next decision sees; a candidate's own columns, then zeros
    reward: Tensor  # float32 [P, N]
    terminated: Tensor  # bool [P, N]
    truncated: Tensor  # bool [P, N], by the time limit
    last_obs: Tensor  # float32 [P, N, F_max], the observation the step led to, before any reset
    score: Tensor  # float64 [P, N], the task's true score of this step


class Tally:
    """Means over the steps since ``take``, by candidate."""

    def __init__(self, P: int, device: torch.device) -> None:
        self.P, self.device = P, device
        self.begin()

    def take(self) -> Tuple[Tensor, Tensor, Tensor, List[Dict[str, float]]]:
        """True score and reward per step float64 [P], episodes ended int64 [P], and the means of the reward's
        components; begins anew."""
        n = max(self.steps, 1)
        components = [{name: float(total) / n for name, total in own.items()} for own in self.components]
        taken = self.score / n, self.reward / n, self.episodes, components
        self.begin()
        return taken

    def begin(self) -> None:
        self.score, self.reward = (torch.zeros(self.P, dtype=torch.float64, device=self.device) for _ in range(2))
        self.episodes = torch.zeros(self.P, dtype=torch.int64, device=self.device)
        self.components: List[Dict[str, Tensor]] = [{} for _ in range(self.P)]
        self.steps = 0

    def add(self, score: Tensor, reward: Tensor, over: Tensor) -> None:
        """[P, N] each, of one step."""
        self.score += score.mean(1)
        self.reward += reward.double().mean(1)
        self.episodes += over.sum(1)
        self.steps += 1

    def add_components(self, members: range, means: Dict[str, Tensor]) -> None:
        """means: [len(members)] each."""
        for name, mean in means.items():
            for k, i in enumerate(members):
                self.components[i][name] = self.components[i].get(name, 0) + mean[k].detach()


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
        self.live, self.failures = calls.live, calls.failures
        self.steps = 0  # control steps since creation
        self.evaluation = False
        self._moved: Set[str] = set()  # properties of the engine that are no longer what the model has
        self._diverged: Optional[Tensor] = None  # bool [P, N], in this step
        self.t = torch.zeros(self.P, self.N, dtype=torch.int64, device=self.device)
        self.tally = Tally(self.P, self.device)
        widest = max([task.action_size, len(task.sim.actuators), MOST_ACTIONS])
        self._try_out(torch.zeros(task.num_envs, widest, device=self.device))
        self._allocate()

    # ------------------------------------------------------------------------------------------------- before the run

    def _try_out(self, action: Tensor) -> None:
        """Call every candidate's functions once, on states of the task's own: how wide are its actions, its
        observations? Who fails is out before the run begins. action: zeros [P N, widest]."""
        self.action_sizes, self.observation_sizes = [self.task.action_size] * self.P, [1] * self.P
        self._key = rng.fold(self.key, rng.RESET)
        self._reset_tasks_own()
        found: Dict[Tuple[Any, ...], Tuple[int, int]] = {}  # who shares functions shares widths
        for i, candidate in enumerate(self.candidates):
            if "compute_goal" in candidate.shapers and not self.task.goal_size:
                reason = f"{self.task.name} has no goals, so there is nothing for compute_goal to set"
                self.calls.fail(i, Failure("WrongOutput", reason, "", -1))
            if i in self.failures:
                continue
            who = tuple(candidate.shapers.get(kind) for kind in ("compute_torque", "compute_observation"))
            if who not in found or candidate.action_size is not None:
                size = self._action_size(i, action)
                if size is None:
                    continue
                found[who] = size, self._observation_size(i, action, size)
            self.action_sizes[i], self.observation_sizes[i] = found[who]

    def _action_size(self, i: int, action: Tensor) -> Optional[int]:
        """Of candidate i, the first width with which its compute_torque returns efforts; None: it is out."""
        candidate, members = self.candidates[i], range(i, i + 1)
        if "compute_torque" not in candidate.shapers:
            return self.task.action_size
        tried = [self.task.action_size, len(self.task.sim.actuators), *range(1, MOST_ACTIONS + 1)]
        if candidate.action_size is not None:
            tried = [candidate.action_size]
        first: Optional[BaseException] = None
        for size in tried:
            group = self.calls.group("compute_torque", members, action, action, size)
            given = [group.state["action"], group.state] + [group.params] * group.shaper.takes_params
            try:
                with self.calls.alarm():
                    self._effort(group, self.calls.timed(group.shaper.function, given))
                return size
            except (Exception, SystemExit) as e:  # what counts is what it raises with the width it was meant for
                first = first or e
            except Hang:
                self.calls.fail_by_hang(group)
                return None
        self.calls._fail_by(i, first, group.shaper.function)  # type: ignore[arg-type]
        return None

    def _observation_size(self, i: int, action: Tensor, size: int) -> int:
        sizes = [1]

        def deliver(group: Group, out: Any) -> None:
            sizes[0] = check_tensor("compute_observation", out, (self.N, None)).shape[1]

        group = self.calls.group("compute_observation", range(i, i + 1), action, action, size)
        self.calls.one(group, [group.state], deliver)
        return sizes[0]

    def _allocate(self) -> None:
        P, N, device = self.P, self.N, self.device
        A, F = max(self.action_sizes), max(self.observation_sizes)
        self.action, self.previous_action = torch.zeros(P * N, A, device=device), torch.zeros(P * N, A, device=device)
        self.effort = torch.zeros(P * N, len(self.task.sim.actuators), device=device)
        self.obs, self.last_obs = torch.zeros(P, N, F, device=device), torch.zeros(P, N, F, device=device)
        self.reward = torch.zeros(P, N, device=device)
        self.terminated = torch.zeros(P, N, dtype=torch.bool, device=device)
        self.calls.form_groups(self.action, self.previous_action, self.action_sizes, self.observation_sizes)
        self.action.copy_(2 * rng.uniform(self.key[:1], torch.arange(A * P * N, device=device)).view(P * N, A) - 1)
        self.calls.split_what_mixes()
        self.action.zero_()

    # -------------------------------------------------------------------------------------------------------- a run

    def set_clock(self, iteration: int) -> None:
        """Move the scheduled parameters to where they are at this iteration; episodes that begin from now on use it."""
        for name, schedule in self.schedules.items():
            low, high = schedule(iteration)
            self.task.ranges[name] = self.task.parameters[name]._replace(low=low, high=high)

    def begin(self, evaluation: bool = False, staggered: bool = False) -> Tensor:
        """Begin an episode everywhere -> obs. evaluation: with the task's own initial states, goals, terminations and
        parameters, and every environment plays one episode; what follows its end means nothing. staggered: these first
        episodes reach the time limit one by one, not all at once, so that a short rollout shows every stage of them."""
        self.evaluation = evaluation
        self._key = rng.fold(self.key, rng.FINAL_TEST if evaluation else rng.RESET)
        if evaluation:
            self.task.ranges = dict(self.task.parameters)
        self._reset(torch.ones(self.P, self.N, dtype=torch.bool, device=self.device))
        if staggered:
            self.t += torch.arange(self.N, device=self.device) * self.task.max_steps // self.N
            self.task.state["progress"].copy_(self.t.view(-1))
        self._observe(self.obs)
        return self.obs

    def step(self, action: Tensor) -> Step:
        """action: float32 [P, N, A_max] -> what it leads to."""
        task, calls = self.task, self.calls
        calls.step = self.steps
        task.before_step()
        self.previous_action.copy_(self.action)
        self.action.copy_(action.reshape(self.P * self.N, -1))
        calls.each("compute_torque", lambda g: (g.state["action"], g.state), self._take_effort)
        self._clean(self.effort.view(self.P, self.N, -1), "compute_torque")
        task.sim.set_effort(self.effort)
        task.sim.step(task.substeps)
        self.steps += 1
        self.t += 1
        limit = task.sim.effort_limit.to(self.effort.dtype)
        task.state["torque"].copy_(torch.minimum(torch.maximum(self.effort, -limit), limit))
        task.state["progress"].copy_(self.t.view(-1))
        task.measure()
        task.after_step()
        unstable = task.sim.unstable.view(self.P, self.N)
        self._diverged = unstable if unstable.any() else None
        score = task.score().view(self.P, self.N)
        if self._diverged is not None:  # its state means nothing
            score = torch.where(self._diverged, task.score_after_end().view(self.P, self.N), score)

        calls.each("compute_reward", lambda g: (g.state,), self._take_reward)
        self._clean(self.reward, "compute_reward")
        self._terminal()
        truncated = (self.t >= task.max_steps) & ~self.terminated
        self._observe(self.last_obs)
        self.obs.copy_(self.last_obs)
        over = self.terminated | truncated
        if not self.evaluation and over.any():
            self._reset(over)
            self._observe(self.obs, over)
        calls.end_step()
        self.tally.add(score, self.reward, over)
        return Step(self.obs, self.reward, self.terminated, truncated, self.last_obs, score)

    # ------------------------------------------------------------------------------------------- what functions return

    def _effort(self, group: Group, out: Any) -> Tensor:
        return check_tensor(
            "compute_torque", out, (group.rows.stop - group.rows.start, self.task.state["torque"].shape[1])
        )

    def _take_effort(self, group: Group, out: Any) -> None:
        self.effort[group.rows] = self._effort(group, out)

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
        """into: [P, N, F_max] <- observations; only: bool [P, N], just of the candidates that have one of these."""
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
        """values [P, N] or [P, N, _]: nothing of environments that diverged or of candidates that are out; who has a
        number that is not finite is out now."""
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

    # ---------------------------------------------------------------------------------------------------------- resets

    def _random(self, stream: int, ids: Tensor) -> Random:
        """Random numbers of resets of environments ids [K]: as many for every control step, so that what an episode
        draws depends on when and in which environment it begins alone."""
        R = self.task.random_numbers
        number = (self.steps * self.N + ids % self.N)[:, None] * R + torch.arange(R, device=self.device)
        key = rng.fold(self._key, stream)[ids // self.N][:, None]
        return Random(rng.uniform(key, number), rng.normal(rng.fold(key, stream), number))

    def _reset_tasks_own(self) -> None:
        """Begin episodes as the task itself does, for all."""
        ids = torch.arange(self.task.num_envs, device=self.device)
        self._draw_parameters(ids)
        goal = self.task.compute_goal(self.task.state, self._random(GOAL, ids))
        pose = self.task.compute_initial_state(self.task.state, self._random(INITIAL_STATE, ids), self._rest(len(ids)))
        self._put(ids, goal, pose)

    def _reset(self, over: Tensor) -> None:
        """Begin new episodes where ``over``, bool [P, N]."""
        ids = over.view(-1).nonzero()[:, 0]
        self._draw_parameters(ids)
        state = self.task.state
        goal_random, random, rest = self._random(GOAL, ids), self._random(INITIAL_STATE, ids), self._rest(len(ids))
        own = {name: tensor[ids] for name, tensor in state.items()}
        goal = self.task.compute_goal(own, goal_random)
        if goal is not None and not self.evaluation:
            goal = self._shaped(goal, "compute_goal", ids, own, goal_random, None)
        if goal is not None:
            own["goal"] = goal
        pose = self.task.compute_initial_state(own, random, rest)
        if not self.evaluation:
            pose = self._shaped(pose, "compute_initial_state", ids, own, random, rest)
        self._put(ids, goal, pose)

    def _shaped(self, default: Any, kind: str, ids: Tensor, state: State, random: Random, rest: Optional[Pose]) -> Any:
        """``default`` (a goal or a pose of environments ids) with the rows of the candidates that have a function."""
        if not any(group.own for group in self.calls.groups[kind]):
            return default
        default = default.clone() if isinstance(default, Tensor) else Pose(*(part.clone() for part in default))
        owner, at = ids // self.N, torch.arange(len(ids), device=self.device)

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
            outs, defaults = ((out,), (default,)) if isinstance(default, Tensor) else (out, default)
            if not isinstance(outs, tuple) or len(outs) != len(defaults):
                raise WrongOutput(f"{kind} returned {type(out).__name__}, expected a {type(default).__name__}")
            for new, old in zip(outs, defaults):
                check_tensor(kind, new, tuple(old[rows].shape))
                if not torch.isfinite(new).all():
                    raise WrongOutput(f"{kind} returned a number that is not finite")
            for new, old in zip(outs, defaults):
                old[rows] = new.to(old.dtype)

        self.calls.each(kind, arguments, deliver)
        return default

    def _rest(self, n: int) -> Pose:
        return Pose(*(part.expand(n, *part.shape) for part in self.task.rest))

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

    def _put(self, ids: Tensor, goal: Optional[Tensor], pose: Pose) -> None:
        task = self.task
        if goal is not None:
            task.state["goal"][ids] = goal
        task.sim.set_state(ids, *task.place(pose, goal))
        self.t.view(-1)[ids] = 0
        task.state["progress"][ids] = 0
        task.state["torque"][ids] = 0
        if hasattr(self, "action"):
            self.action[ids], self.previous_action[ids] = 0, 0
        task.measure()
        task.after_reset(ids)
        self._diverged = None
