"""Number ranges of auto_shape.py's flags, types of those that a file holds, and the flags allowed beside --config or
--resume; checked first."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Union, get_type_hints

from typing_extensions import Literal, get_args, get_origin

from envolve.core.registry import unknown
from envolve.outer.config.yaml_lines import show

if TYPE_CHECKING:
    from envolve.llm.arguments import Args

MANY = 1_000_000  # more candidates, environments, agents, rounds than any machine has time for


class Range(NamedTuple):
    """Range with inclusive limits; ``above`` excludes the lower one."""

    least: float
    most: float
    above: bool = False

    def holds(self, value: float) -> bool:
        """True if in range; False for NaN and values that are not numbers."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return False
        return (self.least < value if self.above else self.least <= value) and value <= self.most

    def words(self) -> str:
        return f"{'above' if self.above else 'at least'} {self.least:,g} and at most {self.most:,.12g}"


RANGES = {
    "num_iters": Range(1, MANY), "shapers_per_iter": Range(1, 10_000), "islands": Range(1, 10_000),
    "migration_every": Range(1, MANY), "novelty": Range(0, 1, above=True), "temperature": Range(0, 100),
    "repairs": Range(0, 9), "edits": Range(0, 1), "cascade": Range(0, 1, above=True), "tune_every": Range(0, MANY),
    "max_tokens": Range(1, 10 * MANY), "num_envs_per_shaper": Range(1, 100_000), "iterations": Range(1, 1000 * MANY),
    "seeds": Range(1, 10_000), "halving": Range(1, 10_000), "tune_top": Range(1, 10_000),
    "tune_generations": Range(1, MANY), "tune_population": Range(3, MANY), "tune_sigma": Range(1e-6, 1000),
    "tune_step": Range(0, 1000), "tune_workers": Range(0, 10_000), "finalists": Range(1, 10_000),
    "retest": Range(1, 10_000), "seed": Range(0, 2**63 - 1), "budget_usd": Range(0, 1e9),
    "budget_tokens": Range(0, 10**15), "parallel": Range(1, 1000), "timeout": Range(0, 1e6, above=True),
    "threads": Range(0, 1024), "processes": Range(0, 10_000), "memory": Range(0, 1e6, above=True),
    "hours": Range(0, 1e5, above=True),
}  # fmt: skip

# Of the flags these count with --config; the file says the rest.
WITH_CONFIG = {
    "config", "llm", "base_url", "seed", "set", "results_dir", "json", "resume", "allow_unprotected", "max_tokens",
    "wandb", "parallel", "timeout", "budget_usd", "budget_tokens", "price", "processes", "memory", "hours",
}  # fmt: skip
# With --resume these are this session's, the rest is the run's.
WITH_RESUME = {
    "resume", "json", "video", "wandb", "budget_usd", "budget_tokens", "price", "base_url", "parallel", "timeout",
}  # fmt: skip


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def out_of_range(args: Args) -> List[str]:
    """Problems of numbers out of range, a line each."""
    return [
        f"{_flag(name)}: found {value}, expected {wanted.words()}"
        for name, wanted in RANGES.items()
        if (value := getattr(args, name)) is not None and not wanted.holds(value)
    ]


def given(args: Args) -> Dict[str, Any]:
    """Flags that differ from their defaults, i.e. those that the user visibly gave."""
    defaults = type(args)()
    names = [f.name for f in dataclasses.fields(args)]
    return {name: getattr(args, name) for name in names if getattr(args, name) != getattr(defaults, name)}


def without_effect(args: Args) -> List[str]:
    """At most one problem: the flags without effect beside --config."""
    flags = [_flag(name) for name in given(args) if name not in WITH_CONFIG]
    if not flags:
        return []
    have, them = ("has", "it") if len(flags) == 1 else ("have", "them")
    return [f"{', '.join(flags)}: {have} no effect with --config, whose file says {them}"]


def changed(args: Args, stored: Dict[str, Any]) -> List[str]:
    """Problems of flags that differ from those of the resumed run and cannot be changed, a line each."""
    return [
        f"{_flag(name)}: found {value}, expected {stored[name]}, with which the run was begun, or nothing"
        for name, value in given(args).items()
        if name not in WITH_RESUME and name in stored and value != stored[name]
    ]


KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", Path: "a path", list: "texts"}


def of_other_types(stored: Dict[str, Any], args: Args) -> List[str]:
    """Problems of a file's arguments whose values no flag could have given, a line each."""
    hints = get_type_hints(type(args))
    return [_expected(name, value, hints[name]) for name, value in stored.items() if not _fits(value, hints[name])]


def _fits(value: Any, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin is Union:
        return any(_fits(value, k) for k in get_args(kind))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if origin is not None:  # a list, or a tuple of paths
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, str if kind is Path else kind)


def _expected(name: str, value: Any, kind: Any) -> str:
    if get_origin(kind) is Literal:
        return unknown(f"arguments.{name}", value, get_args(kind))
    kinds = get_args(kind) if get_origin(kind) is Union else (kind,)
    words = [KINDS.get(get_origin(k) or k, "nothing") for k in kinds]
    return f"arguments.{name}: found {show(value)}, expected {' or '.join(words)}"
