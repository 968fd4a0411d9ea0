"""Searches by name, with the checks and conversions that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from envolve.core.registry import nearest
from envolve.outer.hpo.hyperband import POLICIES, ladder
from envolve.outer.hpo.trial import Plain, TrialSearch

if TYPE_CHECKING:
    import ConfigSpace

BACKENDS = ("bohb", "optuna", "random")
KINDS = {
    "UniformFloatHyperparameter", "UniformIntegerHyperparameter", "CategoricalHyperparameter", "Constant",
}  # fmt: skip
LEAST_SCALE = 1e-9  # ConfigSpace rounds every float to 13 decimal places


def make_search(
    backend: str,
    space: ConfigSpace.ConfigurationSpace,
    budgets: tuple[float, float, float],
    *,
    bracket: str,
    seed: int,
    random_fraction: float,
) -> TrialSearch:
    """budgets: least, most, eta; bracket: "hyperband" or "aggressive", without meaning for back end random, which
    evaluates at ``most`` only; random_fraction: how many of back end bohb's proposals are drawn at random.

    Raises ValueError for a wrong argument, ImportError where what a back end needs is not installed."""
    for what, value, valid in (("back end", backend, BACKENDS), ("bracket", bracket, POLICIES)):
        if value not in valid:
            hint = nearest(str(value), valid)
            raise ValueError(
                f"{what}: found {value!r}; expected {', '.join(valid)}" + (f" (did you mean {hint}?)" if hint else "")
            )
    if not 0 <= random_fraction <= 1:
        raise ValueError(f"random_fraction: found {random_fraction!r}; expected 0 to 1")
    ladder(*budgets)
    if backend == "bohb":
        from envolve.outer.hpo.bohb import BOHB

        return BOHB(space, budgets, seed, bracket, random_fraction)
    if backend == "optuna":
        from envolve.outer.hpo.optuna_tpe import OptunaTPE

        return OptunaTPE(space, budgets, seed, bracket)
    from envolve.outer.hpo.random_search import RandomSearch

    return RandomSearch(space, budgets, seed)


def plain(configuration: Mapping[str, Any]) -> dict[str, Plain]:
    """Converts values to Python's own numbers, booleans and strings: JSON refuses NumPy's."""
    return {str(name): v.item() if isinstance(v, np.generic) else v for name, v in configuration.items()}


def rounded(value: float, lower: float, upper: float) -> float:
    """Rounds to nine digits: processors differ in the last bits of exp and log, and a search resumed on another one
    must ask for the same values."""
    return min(max(float(f"{value:.9g}"), float(lower)), float(upper))


def values_of(configuration: ConfigSpace.Configuration) -> dict[str, Plain]:
    """Active parameters in plain Python. Choices as declared: ConfigSpace keeps them in one array, where true, false
    and 2 become 1, 0 and 2."""
    values: dict[str, Plain] = {}
    for (name, parameter), entry in zip(configuration.config_space.items(), configuration.get_array().tolist()):
        if entry == entry:  # NaN: not active
            value = configuration[name]
            if hasattr(parameter, "choices"):
                value = parameter.choices[round(entry)]
            elif type(parameter).__name__ == "UniformFloatHyperparameter":
                value = rounded(value, parameter.lower, parameter.upper)
            values[name] = value
    return plain(values)


def check_space(space: ConfigSpace.ConfigurationSpace, backend: str, empty: bool = False) -> None:
    """Raises ValueError with everything in a space that a search cannot do. empty: allow a space without parameters."""
    problems = []
    if not empty and not len(space):
        problems.append(f"no parameter; expected one at least: back end {backend} has nothing to search (random has)")
    for name, parameter in space.items():
        kind = type(parameter).__name__
        if hasattr(parameter, "sequence"):
            problems.append(f"{name}: found an ordinal; expected an integer in its place, which counts the sequence")
        elif kind not in KINDS:
            problems.append(f"{name}: found {kind}; expected one of {', '.join(sorted(KINDS))}")
        elif kind == "UniformFloatHyperparameter":
            scale = parameter.lower if parameter.log else parameter.upper - parameter.lower
            if scale < LEAST_SCALE:
                problems.append(
                    f"{name}: found a range from {parameter.lower:g} to {parameter.upper:g}; expected"
                    f" {'a lower end' if parameter.log else 'a width'} of {LEAST_SCALE:g} or more (another unit?):"
                    " ConfigSpace keeps 13 decimal places"
                )
    if problems:
        raise ValueError("search space: " + "; ".join(problems))
