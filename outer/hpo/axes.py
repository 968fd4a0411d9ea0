"""Axes of parameters for pictures and importances, from the search space or from the tried values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envolve.outer.hpo.trial import ONE_MINUS, Plain, Record
from envolve.outer.reporting.report import precise


@dataclass(frozen=True)
class Axis:
    """One parameter. Numbers: low to high; choices: in their order."""

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False  # whole numbers
    choices: tuple[Plain, ...] = ()

    def place(self, value: Plain) -> float:
        """Position of a value, low at 0 and high at 1; choices are spread evenly."""
        if self.choices:
            return 0.5 if len(self.choices) == 1 else self.position(value) / (len(self.choices) - 1)
        low, high, x = self.low, self.high, float(value)
        if self.log:
            low, high, x = math.log(low), math.log(high), math.log(x)
        return 0.5 if low == high else (x - low) / (high - low)

    def position(self, value: Plain) -> int:
        """Index of a choice; 1 and true are different."""
        return next(i for i, c in enumerate(self.choices) if _same(c, value))


def axes_of(space: Mapping[str, Any] | None, records: Sequence[Record]) -> list[Axis]:
    """space: a ConfigSpace.ConfigurationSpace, name -> hyperparameter; None: it is guessed from the values. Values that
    the space does not have widen its axes."""
    values: dict[str, list[Plain]] = {}
    for r in records:
        for name, value in r.trial.values.items():
            values.setdefault(name, []).append(value)
    axes = [_axis(name, hyperparameter) for name, hyperparameter in (space or {}).items()]
    known = {a.name for a in axes}
    axes = [_widened(a, values.get(a.name, ())) for a in axes]
    return axes + [_guessed(name, found) for name, found in values.items() if name not in known]


def short_names(names: Sequence[str]) -> dict[str, str]:
    """The last two words of dotted names, more where it takes more to tell them apart: agents.gtn.step_size ->
    gtn.step_size, and 1-agents.ddqn.gamma -> 1-ddqn.gamma."""
    out: dict[str, str] = {}
    for name in names:
        n = 2
        while n <= name.count(".") and any(o != name and _shortened(o, n) == _shortened(name, n) for o in names):
            n += 1
        out[name] = _shortened(name, n)
    return out


def _shortened(name: str, n: int) -> str:
    prefix = ONE_MINUS if name.startswith(ONE_MINUS) else ""
    return prefix + ".".join(name[len(prefix) :].split(".")[-n:])


def value_text(value: Plain) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return precise(value) if isinstance(value, float) else shown(str(value))


def shown(text: str, most: int = 40) -> str:
    """Cleans texts from files: no control characters, and none too long for a table."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= most else text[: most - 3] + "..."


def _axis(name: str, hyperparameter: Any) -> Axis:
    choices = getattr(hyperparameter, "choices", getattr(hyperparameter, "sequence", None))
    if choices is None and hasattr(hyperparameter, "value"):  # a constant
        choices = (hyperparameter.value,)
    if choices is not None:
        return Axis(name, choices=tuple(c.item() if hasattr(c, "item") else c for c in choices))
    low, high = hyperparameter.lower, hyperparameter.upper
    whole = type(hyperparameter).__name__.endswith("IntegerHyperparameter")
    return Axis(name, float(low), float(high), bool(hyperparameter.log), whole)


def _widened(axis: Axis, values: Sequence[Plain]) -> Axis:
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if axis.choices or len(numbers) < len(values):
        listed = axis.choices or tuple(sorted(set(numbers)))
        return replace(axis, choices=listed + tuple(_unlike(values, listed)))
    low, high = min([axis.low, *numbers]), max([axis.high, *numbers])
    whole = axis.whole and all(isinstance(v, int) for v in numbers)
    return replace(axis, low=low, high=high, log=axis.log and low > 0, whole=whole)


def _guessed(name: str, values: Sequence[Plain]) -> Axis:
    """Guesses an axis: texts and booleans are choices; numbers over more than two decades get a log scale."""
    if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        choices = tuple(_unlike(values, ()))
        return Axis(name, choices=tuple(sorted(choices, key=str)))
    numbers = [v for v in values if not isinstance(v, str)]
    low, high = min(numbers), max(numbers)
    return Axis(name, low, high, low > 0 and high > 100 * low, all(isinstance(v, int) for v in numbers))


def _unlike(values: Sequence[Plain], known: Sequence[Plain]) -> list[Plain]:
    out: list[Plain] = []
    for v in values:
        if not any(_same(v, k) for k in (*known, *out)):
            out.append(v)
    return out


def _same(a: Plain, b: Plain) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)
