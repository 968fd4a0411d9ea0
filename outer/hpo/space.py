"""Search space of a study: the keys of a configuration that vary, as ConfigSpace, and a trial's values as overrides.

How a study writes it is in ``reading/space.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from envolve.outer.config.yaml_lines import ConfigError, show
from envolve.outer.hpo.trial import ONE_MINUS, Plain

try:
    import ConfigSpace
except ImportError as e:
    raise ImportError(f"studies need a missing package ({e}): pip install 'ConfigSpace>=1.2'") from e

ROUNDING = 1e-9  # ConfigSpace rounds to 13 decimals, which may lead over the end of a range


@dataclass(frozen=True)
class Condition:
    """Condition: a parameter is active only if the parameter of ``key`` has one of ``values``."""

    key: str
    values: tuple[Plain, ...]


@dataclass(frozen=True)
class Parameter:
    """One key that varies: over ``choices``, or, if there are none, from ``low`` to ``high``."""

    key: str  # of the configuration, dotted
    type: type  # of the key's value: bool, int, float or str
    choices: tuple[Plain, ...] = ()
    low: float = 0.0  # both bound what is searched: 1 - value for one_minus
    high: float = 0.0
    log: bool = False
    one_minus: bool = False
    when: tuple[Condition, ...] = ()

    @property
    def name(self) -> str:
        """Name in trials."""
        return ONE_MINUS + self.key if self.one_minus else self.key

    @property
    def kind(self) -> str:
        """Name in studies."""
        return "choices" if self.choices else "one_minus" if self.one_minus else "range"

    def allows(self, searched: Any) -> bool:
        """True for plain Python values that are in the search range."""
        if type(searched) is not self.type:
            return False
        if self.choices:
            return searched in self.choices
        number = cast(float, searched)
        slack = 0 if self.type is int else ROUNDING * max(1.0, abs(self.low), abs(self.high))
        return self.low - slack <= number <= self.high + slack

    def value(self, searched: Any) -> Plain:
        """Value of the key for a searched value."""
        if self.choices:
            return self.type(searched)
        inside = self.type(min(max(searched, self.low), self.high))
        return 1.0 - inside if self.one_minus else inside

    def extremes(self) -> list[Plain]:
        """Extreme values of the search: every choice, or both ends of the range."""
        return list(self.choices) or self._ends()

    def _ends(self) -> list[Plain]:
        return [self.type(self.low), self.type(self.high)]

    def written(self) -> dict[str, Any]:
        """Entry as written in a study."""
        out: dict[str, Any] = {self.kind: self.extremes(), **({"log": True} if self.log else {})}
        when = {condition.key: list(condition.values) for condition in self.when}
        return {**out, "when": when} if when else out

    def __str__(self) -> str:
        if self.choices:
            return "one of " + ", ".join(map(show, self.choices))
        low, high = self._ends()
        return f"{'an integer' if self.type is int else 'a number'} from {low} to {high}"

    def hyperparameter(self) -> Any:
        """Hyperparameter of ConfigSpace. Raises ValueError if ConfigSpace has no such range."""
        if self.choices:
            return ConfigSpace.CategoricalHyperparameter(self.name, list(self.choices))
        cls = ConfigSpace.UniformIntegerHyperparameter if self.type is int else ConfigSpace.UniformFloatHyperparameter
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numbers that overflow end in a ValueError, too
            return cls(self.name, *self._ends(), log=self.log)


@dataclass(frozen=True)
class Space:
    """The parameters of a study, in the order of its file."""

    parameters: tuple[Parameter, ...]

    @cached_property
    def by_name(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters}

    @cached_property
    def by_key(self) -> dict[str, Parameter]:
        return {p.key: p for p in self.parameters}

    @cached_property
    def config_space(self) -> Any:
        """ConfigSpace.ConfigurationSpace with random seed 0. The order in the file does not matter."""
        space = ConfigSpace.ConfigurationSpace(seed=0)
        parameters = sorted(self.parameters, key=lambda p: p.name)
        of_key = {p.key: p.hyperparameter() for p in parameters}
        space.add(list(of_key.values()))
        for p in parameters:
            conditions = [ConfigSpace.InCondition(of_key[p.key], of_key[c.key], list(c.values)) for c in p.when]
            if conditions:
                space.add(conditions[0] if len(conditions) == 1 else ConfigSpace.AndConjunction(*conditions))
        return space

    def active(self, values: Mapping[str, Plain]) -> set[str]:
        """Names of the active parameters, by the values of those that they depend on."""

        def there(p: Parameter) -> bool:  # a parent's name is its key: one_minus cannot be one
            return all(there(self.by_key[c.key]) and values.get(c.key) in c.values for c in p.when)

        return {p.name for p in self.parameters if there(p)}

    def overrides(self, values: Mapping[str, Plain]) -> dict[str, Plain]:
        """Overrides of a trial: dotted key and value. Raises ConfigError if the values are not a point of this
        space."""
        problems = []
        for name, value in values.items():
            if name not in self.by_name:
                problems.append(f"{name}: found an unknown parameter, expected one of {', '.join(self.by_name)}")
            elif not self.by_name[name].allows(value):
                found = f"{show(value)} ({type(value).__name__})"
                problems.append(f"{name}: found {found}, expected {self.by_name[name]}")
        there = self.active(values)
        for name in self.by_name:
            if name in there and name not in values:
                problems.append(f"{name}: found nothing, expected a value")
        if problems:
            raise ConfigError(problems)
        # where conditions hang on conditions ConfigSpace 1.2 may give a parameter that is not there a value: unread
        return {p.key: p.value(values[name]) for name, p in self.by_name.items() if name in there}
