"""What a model is told of a task in a physics engine: figures, the table of its state, the human's reward."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from envolve.envs.managers.facts import measured
from envolve.envs.managers.task import ManagedTask
from envolve.envs.physics.aliases import aliases
from envolve.envs.physics.task import PHYSICS_TASKS, PhysicsTask
from envolve.envs.sim.simulator import make_simulator
from envolve.llm.vetting.normal.helpers import SOURCES

_NOISE = re.compile(r"^@.*\n|  # type: ignore.*$", re.MULTILINE)  # decorators, and what is for mypy


@dataclass(frozen=True)
class TaskFacts:
    """Facts of a task that only its simulator knows, and others that signatures need."""

    dt: float  # s, of a control step
    efforts: int  # U
    effort_limits: tuple[float, ...]  # [U], N m or N; infinite: none
    features: int  # of the human's observation
    bodies: int  # A, free ones
    joints: int  # D


_known: dict[type[PhysicsTask], TaskFacts] = {}


def task_facts(cls: type[PhysicsTask]) -> TaskFacts:
    """Reads the facts from a simulator of one environment, once per task."""
    if cls not in _known:
        _known[cls] = _measured(cls)
    return _known[cls]


def _measured(cls: type[PhysicsTask]) -> TaskFacts:
    if issubclass(cls, ManagedTask):
        made = measured(cls.name)
        limits = (math.inf,) * made.action_size
        return TaskFacts(made.step_seconds, made.action_size, limits, made.features, made.bodies, made.joints)
    sim = make_simulator("mujoco", cls.model, 1, cls.outputs)
    task = cls(sim)
    action = torch.zeros(1, cls.action_size)
    observation = cls.compute_observation({**task.state, "action": action, "previous_action": action})
    limits = tuple(float(x) for x in sim.effort_limit)
    facts = TaskFacts(
        task.dt, len(sim.actuators), limits, observation.shape[1], sim.root_state.shape[1], sim.joint_position.shape[1]
    )
    sim.close()
    return facts


def limits_text(limits: tuple[float, ...]) -> str:
    """Text such as +- 80, or one per column; empty without limits."""
    if all(math.isinf(x) for x in limits):
        return ""
    if len(set(limits)) == 1:
        return f"+- {limits[0]:g}"
    return "+- (" + ", ".join("none" if math.isinf(x) else f"{x:g}" for x in limits) + ")"


def state_table(cls: type[PhysicsTask], action_sized: str = "A") -> str:
    """Table of the state: name, shape, unit, meaning. action_sized: the width of actions."""
    lines = []
    for name, q in cls.described(task_facts(cls).efforts).items():
        shape = ", ".join(["n", *map(str, q.shape)])
        unit = f", {q.unit}" if q.unit else "" if name == "goal" else ", no unit"  # a goal's are in its meaning
        line = f'- state["{name}"] [{shape}]{unit}' + (f": {q.meaning}" if q.meaning else "")
        if name in cls.parameters:
            low, high = cls.parameters[name].low, cls.parameters[name].high
            line += f" (constant, {low:g})" if low == high else f" (drawn from [{low:g}, {high:g}] for every episode)"
        lines.append(line)
    for name, which in (("action", "last"), ("previous_action", "last but one")):
        lines.append(
            f'- state["{name}"] [n, {action_sized}], no unit: the policy\'s {which} action, 0 at the beginning'
        )
    return "\n".join(lines)


def other_names(cls: type[PhysicsTask]) -> str:
    """Names of IsaacGymEnvs that code may use beside the state's own, and the helper functions that it may call."""
    functions = f"its functions {', '.join(SOURCES)} (quaternions are x, y, z, w)."
    if cls.name not in PHYSICS_TASKS:  # of a task that comes from elsewhere no names are known
        return f"Of IsaacGymEnvs {functions.removesuffix('.')} may be called."
    names = [name for name in aliases(cls) if name not in ("device", "num_envs")]
    return f"Names of IsaacGymEnvs are understood as well: {', '.join(names)}; and {functions}"


def human_source(function: Callable[..., Any]) -> str:
    """The function's source with the constants and helpers of this project that it uses, so that nothing in it is
    undefined for a reader. Constants become comments."""
    constants: dict[str, str] = {}
    sources: dict[str, str] = {}
    todo: list[Callable[..., Any]] = [function]
    while todo:
        f = inspect.unwrap(todo.pop())
        if not isinstance(f, FunctionType) or f.__qualname__ in sources:
            continue
        sources[f.__qualname__] = _NOISE.sub("", inspect.cleandoc("\n" + inspect.getsource(f)))
        for name in f.__code__.co_names:
            value = f.__globals__.get(name)
            if callable(value) and getattr(value, "__module__", "").startswith("envolve.envs."):
                todo.append(value)
            elif isinstance(value, (int, float, tuple)):
                constants[name] = f"# {name} = {value!r}"
    return "\n\n".join(["\n".join(constants.values())] * bool(constants) + list(sources.values()))
