"""Widths of the candidates' actions and observations, found by calling their functions once before a run."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from envolve.envs.physics.task import PhysicsTask
from envolve.envs.shaping.alarm import Hang
from envolve.envs.shaping.calls import Group, ShaperCalls
from envolve.envs.shaping.candidate import Failure, check_tensor

MOST_ACTIONS = 128  # widths that are tried; a candidate may name a larger one


def find_widths(task: PhysicsTask, calls: ShaperCalls) -> Tuple[List[int], List[int]]:
    """Widths of actions and of observations, by candidate. Functions see the actual state; candidates that raise
    fail."""
    named = [candidate.action_size or 0 for candidate in calls.candidates]
    widest = max(task.action_size, len(task.sim.actuators), MOST_ACTIONS, *named)
    action = torch.zeros(task.num_envs, widest, device=task.sim.device)
    action_sizes, observation_sizes = [task.action_size] * calls.P, [1] * calls.P
    found: Dict[Tuple[Any, ...], Tuple[int, int]] = {}  # candidates that share functions share widths
    for i, candidate in enumerate(calls.candidates):
        if "compute_goal" in candidate.shapers and not task.goal_size:
            reason = f"{task.name} has no goals, so there is nothing for compute_goal to set"
            calls.fail(i, Failure("WrongOutput", reason, "", -1))
        if i in calls.failures:
            continue
        who = tuple(candidate.shapers.get(kind) for kind in ("compute_torque", "compute_observation"))
        if who not in found or candidate.action_size is not None:
            size = _action_size(task, calls, i, action)
            if size is None:
                continue
            found[who] = size, _observation_size(calls, i, action, size)
        action_sizes[i], observation_sizes[i] = found[who]
    return action_sizes, observation_sizes


def check_effort(task: PhysicsTask, group: Group, out: Any) -> Tensor:
    """Result of a group's compute_torque, if it is an effort for its environments. Raises WrongOutput."""
    return check_tensor("compute_torque", out, (group.rows.stop - group.rows.start, task.state["torque"].shape[1]))


def _action_size(task: PhysicsTask, calls: ShaperCalls, i: int, action: Tensor) -> Optional[int]:
    """First action width for which candidate i's compute_torque returns efforts; None: the candidate failed."""
    candidate, members = calls.candidates[i], range(i, i + 1)
    if "compute_torque" not in candidate.shapers:
        return task.action_size
    tried = [task.action_size, len(task.sim.actuators), *range(1, MOST_ACTIONS + 1)]
    if candidate.action_size is not None:
        tried = [candidate.action_size]
    first: Optional[BaseException] = None
    for size in tried:
        group = calls.group("compute_torque", members, action, action, size)
        given = [group.state["action"], group.state] + [group.params] * group.shaper.takes_params
        try:
            with calls.alarm.on():
                check_effort(task, group, calls.timed(group.shaper.function, given))
            return size
        except (Exception, SystemExit) as e:  # what counts is what it raises with the width it was meant for
            first = first or e
        except Hang as e:
            calls.fail_by_hang(group, e)
            return None
    calls.fail_by(i, first, group.shaper.function)  # type: ignore[arg-type]
    return None


def _observation_size(calls: ShaperCalls, i: int, action: Tensor, size: int) -> int:
    sizes = [1]

    def deliver(group: Group, out: Any) -> None:
        sizes[0] = check_tensor("compute_observation", out, (calls.N, None)).shape[1]

    group = calls.group("compute_observation", range(i, i + 1), action, action, size)
    calls.one(group, [group.state], deliver)
    return sizes[0]
