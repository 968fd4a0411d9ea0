"""The section ``space`` of a study: one entry per key of the configuration that varies.

``{range: [low, high], log: true}``     a number; an integer where the key takes one
``{one_minus: [low, high], log: true}`` searched is 1 - value, for what lies near 1, such as a discount
``{choices: [a, b, c]}``                a set without order

With ``when: {another key: [values]}`` it is there only where that parameter has one of these values; all keys of a
``when`` must agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pydantic

from envolve.core.registry import nearest
from envolve.outer.config import problem
from envolve.outer.config.check import Checker
from envolve.outer.config.legacy import LEGACY_KEYS
from envolve.outer.config.schema import defaults, expected, section_model, value_type
from envolve.outer.config.sections import agent_sections, env_sections
from envolve.outer.config.yaml_lines import Path, show
from envolve.outer.hpo.search import LEAST_SCALE
from envolve.outer.hpo.space import Condition, Parameter, Space

KINDS = ("range", "one_minus", "choices")
KEYS = (*KINDS, "log", "when")
LARGEST = {int: 2**53, float: 1e100}  # of a range's ends: ConfigSpace's own arithmetic fails beyond


class Keys:
    """Dotted keys that a configuration can have, with the dataclasses that declare them."""

    def __init__(self, sections: Mapping[str, type], legacy: Mapping[str, Mapping[str, str]]) -> None:
        """sections: prefix -> dataclass, "" for the top level; legacy: keys that are ignored, by kinds of sections."""
        self.sections, self.legacy = sections, legacy
        self.valid = [f"{prefix}.{name}".lstrip(".") for prefix, cls in sections.items() for name in defaults(cls)]

    def section_of(self, key: str) -> tuple[type, str]:
        """Dataclass that declares a valid key, and its name there."""
        prefix, _, name = key.rpartition(".")
        return self.sections[prefix], name

    def check(self, key: str, path: Path, checker: Checker) -> bool:
        """True if the key exists; otherwise reports a problem."""
        if key in self.valid:
            return True
        last = key.split(".")[-1]
        reason = next((reasons[last] for reasons in self.legacy.values() if last in reasons), None)
        found = f"a key of the original that is ignored here ({reason})" if reason else "an unknown key"
        checker.problem(path, found, "a dotted key of a configuration", nearest(key, self.valid, cutoff=0.0))
        return False


def configuration_keys() -> Keys:
    """Sections of the problems that the outer loop solves."""
    sections = {"": problem.RunSection, **{f"agents.{name}": cls for name, (cls, _) in agent_sections().items()}}
    return Keys({**sections, **{f"envs.{name}": cls for name, cls in env_sections().items()}}, LEGACY_KEYS)


class SpaceReader:
    """Reader of all entries; reports problems to the checker."""

    def __init__(self, checker: Checker, keys: Keys) -> None:
        self.checker, self.keys = checker, keys

    def read(self, raw: dict[str, Any]) -> Space:
        """Reads the section ``space``; meaningful only without problems."""
        entries = {key: entry for key, entry in raw.items() if self.keys.check(key, ("space", key), self.checker)}
        found = {key: self.parameter(key, entry) for key, entry in entries.items()}
        parameters = {key: p for key, p in found.items() if p is not None}
        for key, p in parameters.items():
            if "when" in entries[key]:
                when = self.conditions(key, entries[key]["when"], raw, parameters)
                parameters[key] = dataclasses.replace(p, when=when)
        self.circles(parameters)
        return Space(tuple(parameters.values()))

    def value(self, key: str, raw: Any, path: Path) -> Any:
        """Value converted for the key; None, and a problem, if it is invalid."""
        cls, name = self.keys.section_of(key)
        try:
            value = getattr(section_model(cls)(**{name: raw}), name)
        except pydantic.ValidationError:
            value = None
        if value is None:
            self.checker.problem(path, show(raw), expected(cls, name).replace(" or nothing", ""))
        return value

    def parameter(self, key: str, raw: Any) -> Parameter | None:
        """Reads one entry without its conditions; None if it has a problem."""
        path = ("space", key)
        if not isinstance(raw, dict):
            self.checker.problem(path, show(raw), f"a mapping with one of {', '.join(KINDS)}")
            return None
        for name in [name for name in raw if name not in KEYS]:
            self.checker.unknown((*path, name), KEYS, f"a key of {key}")
        kinds = [kind for kind in KINDS if kind in raw]
        log = raw.get("log", False)
        if len(kinds) != 1:
            self.checker.problem(path, " and ".join(kinds) or "none of them", f"one of {', '.join(KINDS)}")
            return None
        if not isinstance(log, bool) or (log and "choices" in raw):
            words = "no log, because choices have no order" if "choices" in raw else "true or false"
            self.checker.problem((*path, "log"), show(log), words)
            return None
        return self.choices(key, raw["choices"]) if "choices" in raw else self.range(key, kinds[0], raw[kinds[0]], log)

    def choices(self, key: str, raw: Any) -> Parameter | None:
        path = ("space", key, "choices")
        if not isinstance(raw, list) or len(raw) < 2:
            self.checker.problem(path, show(raw), "a list of at least two values (one alone belongs under set)")
            return None
        values = [self.value(key, value, (*path, str(i))) for i, value in enumerate(raw)]
        if any(value is None for value in values):
            return None
        for i, value in enumerate(values):
            if value in values[:i]:
                self.checker.problem((*path, str(i)), f"{show(raw[i])} again", "each choice once")
                return None
        return Parameter(key, type(values[0]), choices=tuple(values))

    def range(self, key: str, kind: str, raw: Any, log: bool) -> Parameter | None:
        path = ("space", key, kind)
        cls, name = self.keys.section_of(key)
        base, only = value_type(cls, name)
        numbers = (float,) if kind == "one_minus" else (int, float)
        if base not in numbers or only:
            words = "range" if base is int and not only else "choices"
            self.checker.problem(path, kind, f"{words} for {expected(cls, name)}")
            return None
        ends = raw if isinstance(raw, list) and len(raw) == 2 else []
        if not ends or any(isinstance(end, bool) or not isinstance(end, (int, float)) for end in ends):
            self.checker.problem(path, show(raw), "a list of two numbers")
            return None
        if any(not abs(end) <= LARGEST[base] for end in ends):
            self.checker.problem(path, show(raw), f"numbers between {-LARGEST[base]:g} and {LARGEST[base]:g}")
            return None
        if not ends[0] < ends[1] or (log and ends[0] <= 0):
            words = "the lower end first" + (", and above 0 because of log" if log else "")
            self.checker.problem(path, show(raw), words)
            return None
        one_minus = kind == "one_minus"
        inside = [self.value(key, 1.0 - e if one_minus else e, (*path, str(i))) for i, e in enumerate(ends)]
        if any(value is None for value in inside):
            return None
        low, high = map(float, ends) if one_minus else inside
        scale = low if log else high - low
        if base is float and scale < LEAST_SCALE:
            words = f"{'a lower end' if log else 'a width'} of at least {LEAST_SCALE:g}, because ConfigSpace rounds"
            self.checker.problem(path, show(raw), words)
            return None
        parameter = Parameter(key, base, low=low, high=high, log=log, one_minus=one_minus)
        try:
            parameter.hyperparameter()
        except (ValueError, ArithmeticError) as e:
            self.checker.problem(path, show(raw), f"a range that ConfigSpace can search ({e.__cause__ or e})")
            return None
        return parameter

    def conditions(
        self, key: str, raw: Any, entries: dict[str, Any], parameters: dict[str, Parameter]
    ) -> tuple[Condition, ...]:
        path: Path = ("space", key, "when")
        if not isinstance(raw, dict) or not raw:
            self.checker.problem(path, show(raw), "a mapping: a key of this space and a list of its values")
            return ()
        out = []
        for parent, values in raw.items():
            here = (*path, parent)
            if parent not in parameters or parent == key:
                if parent not in entries or parent == key:  # else its own problem has been reported
                    others = [other for other in parameters if other != key]
                    found = "itself" if parent == key else "a key that is not in this space"
                    self.checker.problem(here, found, "another key of it", nearest(parent, others, cutoff=0.0))
                continue
            p = parameters[parent]
            if not p.choices and p.type is float:
                self.checker.problem(here, f"a parameter that is {p}", "one of choices or integers")
            elif not isinstance(values, list) or not values:
                self.checker.problem(here, show(values), f"a list of its values: {p}")
            else:
                wrong = [(i, v) for i, v in enumerate(values) if not p.allows(self.same_type(parent, v))]
                for i, value in wrong:
                    self.checker.problem((*here, str(i)), show(value), str(p))
                if not wrong:
                    out.append(Condition(parent, tuple(dict.fromkeys(self.same_type(parent, v) for v in values))))
        return tuple(out)

    def same_type(self, key: str, raw: Any) -> Any:
        """Value converted to the key's type (1 for a number is 1.0); unchanged if it is invalid."""
        cls, name = self.keys.section_of(key)
        try:
            return getattr(section_model(cls)(**{name: raw}), name)
        except pydantic.ValidationError:
            return raw

    def circles(self, parameters: dict[str, Parameter]) -> None:
        """Checks that no parameter depends on itself through others."""
        for key in parameters:
            todo, seen = [key], {key}
            while todo:
                for condition in parameters[todo.pop()].when:
                    if condition.key == key:
                        self.checker.problem(("space", key, "when"), "a cycle of conditions", "none")
                    if condition.key not in seen:
                        seen.add(condition.key)
                        todo.append(condition.key)
