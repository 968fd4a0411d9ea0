"""Keys of a configuration and their allowed values, derived from the dataclasses that declare them.

The sections are declared once, in ``envs/section.py``, ``agents/common/sections.py`` and ``outer/config/section.py``;
here each becomes a pydantic model and a text for error messages.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pydantic
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from typing_extensions import Annotated  # Python 3.8's typing has none, and Isaac Gym needs 3.8 of eval_shapers.py

from envolve.agents.common.learners import LEARNERS
from envolve.outer.config import problem
from envolve.outer.config.sections import agent_sections, env_sections

_INT64 = 2**63 - 1


def _integer(value: Any) -> Any:
    """Converts values as the original's files need it: ``!!float 20.0`` is an integer, true is not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) > _INT64):
        raise ValueError("not a 64-bit integer")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _INT64:
        return float(value)
    if not isinstance(value, float):
        raise ValueError("not a number")
    return value


def _one_of(choices: Sequence[Any]) -> Any:
    def check(value: Any) -> Any:
        if value not in choices:
            raise ValueError("not among the choices")
        return value

    return check


def _base_type(hint: Any) -> tuple[Any, bool]:
    """Optional[int] -> (int, True); int -> (int, False)."""
    members = [t for t in typing.get_args(hint) if t is not type(None)]
    return (members[0], True) if typing.get_origin(hint) is typing.Union else (hint, False)


@lru_cache(maxsize=None)
def section_model(section: type) -> type[pydantic.BaseModel]:
    """Pydantic model of a section's dataclass: the same names, defaults and limits."""
    hints = typing.get_type_hints(section)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(section):
        base, optional = _base_type(hints[field.name])
        convert = {int: _integer, float: _number}.get(base)
        annotations: list[Any] = [Field(**field.metadata["limits"])] if field.metadata["limits"] else []
        annotations += [BeforeValidator(convert)] if convert else []
        annotations += [AfterValidator(_one_of(field.metadata["choices"]))] if field.metadata["choices"] else []
        annotated = Annotated[tuple([base, *annotations])] if annotations else base
        fields[field.name] = (typing.Optional[annotated] if optional else annotated, field.default)
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())
    return pydantic.create_model(section.__name__ + "Model", __config__=config, **fields)


def expected(section: type, name: str) -> str:
    """Allowed values of a key in words: type, limits and meaning."""
    field = {f.name: f for f in dataclasses.fields(section)}[name]
    base, optional = _base_type(typing.get_type_hints(section)[name])
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text"}[base]
    if field.metadata["choices"]:
        words = "one of " + ", ".join(map(str, field.metadata["choices"]))
    symbols = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    limits = " and ".join(f"{symbols[k]} {v}" for k, v in field.metadata["limits"].items())
    return " ".join(filter(None, [words, limits, "or nothing" if optional else "", f"({field.metadata['help']})"]))


def value_type(section: type, name: str) -> tuple[type, Sequence[Any]]:
    """Type of a key's values, and the choices if it has any."""
    field = {f.name: f for f in dataclasses.fields(section)}[name]
    return _base_type(typing.get_type_hints(section)[name])[0], field.metadata["choices"] or ()


def defaults(section: type) -> dict[str, Any]:
    return {f.name: f.default for f in dataclasses.fields(section)}


def agent_names() -> list[str]:
    """Allowed values of ``agents.gtn.agent_name``, in lower case."""
    names = []
    for learner, entry in LEARNERS.items():
        names += [learner, learner + problem.CURIOUS_SUFFIX] if entry.curious else [learner]
    return [name + suffix for name in names for suffix in ("", problem.VARY_SUFFIX)]


def valid_keys() -> list[str]:
    """Every dotted key that a configuration can have."""
    sections = {f"agents.{name}": cls for name, (cls, _) in agent_sections().items()}
    sections.update({f"envs.{name}": cls for name, cls in env_sections().items()})
    keys = list(defaults(problem.RunSection))
    return keys + [f"{prefix}.{name}" for prefix, cls in sections.items() for name in defaults(cls)]
