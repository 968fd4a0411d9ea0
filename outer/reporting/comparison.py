"""Comparison of agents of an evolved world with agents of the task: whether their steps are comparable, and two prices.

Steps say nothing where the agents do not do the same. Each side's interquartile mean (IQM) return is set between that
of a random policy, 0, and that of the better side or the mark that solves the task, 1. Steps are compared if both sides
come to at least CLOSE of the way, and the lower ends of both 95 % intervals to at least SURE. An agent that failed
counts as a random policy.

Price per agent               its training steps in the world, beside its steps on the task
price with the evolution      the real steps that were spent to evolve the world, too: after how many agents the world
                              has cost less than the same agents on the task
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from envolve.core.statistics import IQM, AgentRuns, interquartile_mean, interval
from envolve.envs.task import Task
from envolve.outer.reporting.names import return_range

CLOSE, SURE = 0.95, 0.90
RANDOM_EPISODES = 20
POSSIBLE_STEPS = (0.0, math.inf)  # at which intervals of steps end; of few agents they reached below 0


def random_return(task: Task, episodes: int = RANDOM_EPISODES) -> float:
    """Mean return of a policy that draws its actions uniformly, without episodes that failed; NaN: all did. Always the
    same for the same task."""
    rng = np.random.default_rng(0)
    first = torch.from_numpy(rng.random((1, episodes, task.reset_uniforms), dtype=np.float32))
    drawn: list[Tensor] = []  # actions of every step, [1, episodes] or [1, episodes, A]

    def actions(part: slice, step: int) -> Tensor:
        while len(drawn) <= step:
            if task.num_actions:
                drawn.append(torch.from_numpy(rng.integers(task.num_actions, size=(1, episodes))))
            else:
                numbers = rng.uniform(-task.max_action, task.max_action, (1, episodes, task.action_size))
                drawn.append(torch.from_numpy(numbers.astype(np.float32)))
        return drawn[step][:, part]

    # side by side; where every episode has an environment of its own one after the other, so that one is made
    width = episodes if task.episodes_at_once(1) is None else 1
    parts = [slice(i, i + width) for i in range(0, episodes, width)]
    total = np.concatenate([_returns(task, first[:, part], partial(actions, part)) for part in parts])
    fine = total[np.isfinite(total)]
    return float(fine.mean()) if fine.size else math.nan


def _returns(task: Task, u: Tensor, actions: Callable[[int], Tensor]) -> np.ndarray:
    """Returns of episodes side by side, [N]. u: uniforms [1, N, reset_uniforms]; actions: of a step. An episode that
    failed has none: NaN."""
    state = task.reset(u)
    total, alive = np.zeros(u.shape[1]), np.ones(u.shape[1], bool)
    for step in range(task.max_steps):
        state, reward, over = task.step(state, actions(step))
        total += np.where(alive, reward[0].numpy(), 0.0)
        if task.stops_itself:
            truncated, failed = task.stopped(state)
            total[failed[0].numpy()] = math.nan
            over = over | truncated | failed
        alive &= ~over[0].numpy()
        if not alive.any():
            break
    task.release(state)  # episodes that the time limit has cut
    return total


def return_bounds(task: Task) -> tuple[float, float] | None:
    """Worst and best possible return of an episode: :func:`envolve.outer.reporting.names.return_range`."""
    section = getattr(task, "section", {})  # of an environment from outside: whether it is wrapped
    return return_range({"env_name": task.name, "envs": {task.name: {**section, "max_steps": task.max_steps}}})


@dataclass(frozen=True)
class Side:
    """Agents of one side."""

    iqm: float  # of the returns
    low: float  # lower end of its 95 % interval; of equal returns these
    steps: float  # IQM of the training steps of those that did not fail; NaN: all failed
    failures: int  # agents that failed or do not reach the mark


def side(runs: AgentRuns, floor: float, mark: float | None) -> Side:
    """floor: return that a failed agent counts with; NaN: not known, and failed agents leave no figures of returns.
    mark: return that solves the task."""
    returns = [r if math.isfinite(r) else floor for r in runs.returns]
    iqm = float(interquartile_mean(returns))
    low = interval(returns, IQM)[0] if math.isfinite(iqm) else math.nan
    steps = [s for s, r in zip(runs.steps, runs.returns) if math.isfinite(r)]
    return Side(
        iqm,
        iqm if math.isnan(low) and len(returns) > 1 else low,
        float(interquartile_mean(steps)) if steps else math.nan,
        failures(runs.returns, mark),
    )


def failures(returns: list[float], mark: float | None) -> int:
    """Number of agents that failed, or with a mark did not reach it."""
    return sum(not math.isfinite(r) or (mark is not None and r < mark) for r in returns)


def why_not(world: Side, real: Side, floor: float, mark: float | None, number: Callable[[float], str]) -> str:
    """Reason why the steps of the two sides are not comparable; "": they are."""
    if not math.isfinite(floor):
        return "the return of a random policy is not known"
    best = max(world.iqm, real.iqm, *([] if mark is None else [mark]))
    if best <= floor:
        return f"no agents reach more than random actions ({number(floor)})"
    names = {"from this world": (world, real), "from the task": (real, world)}
    for name, (one, other) in names.items():
        both = f"({number(one.iqm)} against {number(other.iqm)})"
        if (one.iqm - floor) / (best - floor) < CLOSE:
            solves = mark is not None and one.iqm < mark
            return f"agents {name} {'do not solve the task' if solves else 'reach less than the others'} {both}"
        if math.isnan(one.low) or (one.low - floor) / (best - floor) < SURE:
            ends = "too few agents for an interval" if math.isnan(one.low) else f"95 % interval from {number(one.low)}"
            return f"the return of agents {name} is too uncertain {both[:-1]}; {ends})"
    return ""


def ratio_sentence(world: Side, real: Side, number: Callable[[float], str]) -> str:
    """Comparison of comparable steps."""
    if not (world.steps > 0 and real.steps > 0):
        return ""
    if world.steps <= real.steps:
        return f"An agent needs {number(real.steps / world.steps)} times fewer training steps in the evolved world."
    return f"An agent needs {number(world.steps / real.steps)} times more training steps in the evolved world."


def break_even(spent: int, real_per_agent: float, on_task: float) -> float:
    """After how many agents the world has cost fewer real steps than training these on the task; inf: never.

    spent: real steps of the evolution; real_per_agent: real steps that an agent needs in the world (none in an SE);
    on_task: an agent's steps on the task.
    """
    return math.ceil(spent / (on_task - real_per_agent)) if on_task > real_per_agent else math.inf


def price_lines(
    kind: str,
    spent: int | None,
    world: Side | None,
    real: Side | None,
    comparable: bool,
    number: Callable[[float], str],
) -> list[str]:
    """Description of the two prices. kind: se, rn or shaper; spent: real steps of the evolution, None: unknown."""
    lines = []
    if world is not None and math.isfinite(world.steps):
        what = "synthetic steps, no real ones" if kind == "se" else "real steps"
        on_task = f"; on the task {number(real.steps)} real steps" if real and math.isfinite(real.steps) else ""
        lines.append(f"Price per agent: {number(world.steps)} {what}{on_task}.")
    if spent is None:
        return [*lines, "Price with the evolution: unknown; the real steps spent on it were not recorded."]
    text = f"Price with the evolution: {spent:,} real steps were spent on evolving"
    if world is None or real is None or not comparable or math.isnan(world.steps) or math.isnan(real.steps):
        return [*lines, text + "."]
    agents = break_even(spent, 0.0 if kind == "se" else world.steps, real.steps)
    paid = "this never pays in real steps" if math.isinf(agents) else f"this has paid after {agents:,.0f} agents"
    return [*lines, f"{text}; {paid}."]
