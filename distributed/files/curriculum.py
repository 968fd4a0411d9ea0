"""Curriculum of environment parameters: the section "curriculum" of a run's JSON.

    "curriculum": {
      "mass":     {"iters": [0, 20000, 30000, 40000, 50000], "range": [0.0, 10.0]},
      "friction": {"iters": [50000, 120000], "range": [0.1, 0.5], "mode": "linear"}
    }

As in 0shot-object-insertion: a parameter takes as many evenly spaced levels as it has iterations, of the type of the
range's first number (integers cut off fractions). It changes only in collectors, and keeps the value of the
environment's constructor before its first iteration. Mode "step", the original's and the default, holds each level
until the next and drops the current episode at a change. Mode "linear" interpolates between the levels; as it changes
all the time, changes take effect when episodes begin.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium

from envolve.core.registry import nearest
from envolve.envs.shaping.schedule import MODES, Schedule, from_levels
from envolve.outer.config.yaml_lines import ConfigError, show

log = logging.getLogger("envolve")

SECTION = "curriculum"  # of the JSON
KEYS = ("iters", "range", "mode")


@dataclass(frozen=True)
class Course:
    """Schedule of one parameter."""

    iters: tuple[int, ...]  # rising; two that are equal count as the later one
    low: float  # first level
    high: float  # last level, which may be the lower one
    mode: str = "step"

    @property
    def kind(self) -> type:
        """Type of all values."""
        return type(self.low)

    @cached_property
    def schedule(self) -> Schedule:
        """Mode "linear": values change from the first iteration on."""
        steps = from_levels(self.iters, (self.low, self.high), start=self.low)
        if self.mode == "step":
            return steps
        # the line joins the levels before they are cut to integers
        levels = from_levels(self.iters, (float(self.low), float(self.high)), start=float(self.low))
        begun = levels.knots.index(self.iters[0])
        return Schedule(levels.knots[begun:], levels.ranges[begun:], "linear")

    def value(self, itr: int) -> Any:
        """Value at this iteration; None before the first: the constructor's."""
        return None if itr < self.iters[0] else self.kind(self.schedule(itr)[0])

    def passed(self, last_itr: int | None, itr: int) -> bool:
        """True if an iteration of the list lies after ``last_itr`` (None: any) and not after ``itr``."""
        return any((last_itr is None or i > last_itr) and i <= itr for i in self.iters)

    def written(self) -> dict[str, Any]:
        """Schedule in the form of the JSON."""
        mode = {} if self.mode == "step" else {"mode": self.mode}
        return {"iters": list(self.iters), "range": [self.low, self.high], **mode}


@dataclass(frozen=True)
class Curriculum:
    """Schedules of all parameters; a pure function of the iteration, so a resumed run continues with the right
    values."""

    courses: Mapping[str, Course]

    def changes(self, last_itr: int | None, itr: int) -> dict[str, Any]:
        """Parameters to set now, which drops the current episode: where iterations of the schedule have passed since
        ``last_itr``, the level of the last one, even if unchanged. last_itr: the iteration of the last call; None at
        the beginning and after a restart."""
        passed = {n: c for n, c in self.courses.items() if c.mode == "step" and c.passed(last_itr, itr)}
        return {name: course.value(itr) for name, course in passed.items()}

    def at_reset(self, itr: int) -> dict[str, Any]:
        """Parameters to set before an episode begins."""
        linear = {n: c.value(itr) for n, c in self.courses.items() if c.mode == "linear"}
        return {name: value for name, value in linear.items() if value is not None}

    def written(self) -> dict[str, Any]:
        """Section of the JSON."""
        return {name: course.written() for name, course in self.courses.items()}


def curriculum_from(config: Mapping[str, Any]) -> Curriculum:
    """Reads the "curriculum" of a JSON object; empty without one. Raises ConfigError: key, found, expected."""
    section = config.get(SECTION, {})
    if not isinstance(section, dict):
        raise ConfigError([f"{SECTION}: found {show(section)}, expected parameters, each with iters and range"])
    problems: list[str] = []
    courses = {name: _course(f"{SECTION}.{name}", spec, problems) for name, spec in section.items()}
    if problems:
        raise ConfigError(problems)
    return Curriculum({name: course for name, course in courses.items() if course is not None})


def _course(where: str, spec: Any, problems: list[str]) -> Course | None:
    before = len(problems)
    if not isinstance(spec, dict):
        problems.append(f'{where}: found {show(spec)}, expected {{"iters": [...], "range": [low, high]}}')
        return None
    for key in spec:
        if key not in KEYS:
            near = nearest(key, KEYS, cutoff=0.0)
            problems.append(f"{where}.{key}: found an unknown key, expected {', '.join(KEYS)}; nearest: {near}")
    iters, limits, mode = spec.get("iters"), spec.get("range"), spec.get("mode", "step")
    if not isinstance(iters, list) or not iters or not all(type(i) is int and i >= 0 for i in iters):
        problems.append(f"{where}.iters: found {show(iters)}, expected iterations, such as [0, 1000, 2000]")
    if not isinstance(limits, list) or len(limits) != 2 or not all(_is_number(v) for v in limits):
        problems.append(f"{where}.range: found {show(limits)}, expected [first, last], two numbers")
    if mode not in MODES:
        problems.append(f"{where}.mode: found {show(mode)}, expected {' or '.join(MODES)}")
    if len(problems) > before:
        return None
    low, high = limits  # type: ignore[misc]
    if type(low) is int and type(high) is float:
        log.warning("%s.range: found [%s, %s]: as the first is an integer, so are all levels", where, low, high)
    return Course(tuple(sorted(iters)), low, high, mode)  # type: ignore[arg-type]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


# ----------------------------------------------------------------------------------------------- in the environment


def apply(env: gymnasium.Env[Any, Any], values: Mapping[str, Any]) -> None:
    """Sets parameters: an attribute of the environment or of a wrapper around it if one has this name, else a key of
    the environment's dictionary ``config``. Raises ConfigError without setting anything."""
    check(env, values)
    for name, value in values.items():
        if env.has_wrapper_attr(name):
            env.set_wrapper_attr(name, value, force=False)
        else:
            _config(env)[name] = value


def check(env: gymnasium.Env[Any, Any], names: Iterable[str]) -> None:
    """Raises ConfigError for parameters that this environment does not have."""
    problems = []
    for name in names:
        if env.has_wrapper_attr(name) and not name.startswith("_"):
            if callable(env.get_wrapper_attr(name)):
                problems.append(f"{SECTION}.{name}: found a method of {env.unwrapped}, expected a parameter")
        elif name not in _config(env):
            known = [n for n in dir(env.unwrapped) if not n.startswith("_")]
            known = [n for n in known if not callable(getattr(env.unwrapped, n, None))]
            near = nearest(name, [*known, *map(str, _config(env))], cutoff=0.0)
            expected = "expected an attribute or a key of its dictionary config"
            problems.append(f"{SECTION}.{name}: found none in {env.unwrapped}, {expected}; nearest: {near}")
    if problems:
        raise ConfigError(problems)


def _config(env: gymnasium.Env[Any, Any]) -> dict[Any, Any]:
    found = getattr(env.unwrapped, "config", None)
    return found if isinstance(found, dict) else {}
