"""Data of the evolution of environments: attempts, proposals, and the interface of searches.

An attempt is an ``Individual`` whether it worked or not: the reply of a model, the code in it, what vetting and
training said. A ``RewardSearch`` sees individuals and makes ``Proposal``s; it does nothing else, so that the same seed
and the same individuals give the same proposals, and a run is resumed by telling it again what it was told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeAlias

from envolve.core.cleaning import printable
from envolve.core.registry import nearest
from envolve.core.statistics import or_none
from envolve.envs.graph.file import GraphFile
from envolve.envs.graph.values import GraphError
from envolve.outer.config.yaml_lines import show
from envolve.outer.names import HUMAN

Messages: TypeAlias = tuple[tuple[str, str], ...]  # (role, content): "system", "user", "assistant"

INITIAL, IMPROVE, CROSSOVER, REPAIR = "initial", "improve", "crossover", "repair"
EDIT = "edit"  # improve, by changes of single places
OPERATORS = (INITIAL, IMPROVE, CROSSOVER, REPAIR, HUMAN, EDIT)  # human: the task's own shapers, the reference
SCORE, REWARD = "score", "reward"  # names in ``curves``, beside the components of the reward

# Stages of a rejection beside those of vetting (vetting/text/extract.py): no reply came; it says what another has said.
CALL, NOVELTY = "call", "novelty"


class IndividualError(ValueError):
    """Raised for JSON that is not an individual. The text names the key, what was found and what was expected."""


@dataclass
class Individual:
    """One attempt. ``id`` counts from 0 over the run; ``curves`` are over training iterations, NaN where the candidate
    was out. Once it is evaluated it has a score (``ok``), or a ``rejection`` (never trained), or a ``failure``."""

    id: int
    iteration: int  # from 0
    island: int
    operator: str  # one of OPERATORS
    parents: tuple[int, ...]  # ids
    model: str
    call: int  # index of the call in the run; -1: there was none (the human's)
    reply: str = ""
    code: str = ""
    graph_file: GraphFile | None = None
    rejection: tuple[str, str] | None = None  # stage, message
    failure: str | None = None  # in training: kind, reason, traceback
    score: float = math.nan  # the task's true score of the final policies
    interval: tuple[float, float] | None = None
    agent_scores: list[float] = field(default_factory=list)  # one per seed
    curves: dict[str, list[float]] = field(default_factory=dict)
    steps: int = 0  # environment steps spent on it, tuning included
    tuned: dict[str, float] | None = None  # name -> value, where evolution has moved the numbers
    notes: tuple[str, ...] = ()  # what is missing in the reply, what was left out of it, what was rewritten
    # what was refused or failed and then asked for again, oldest first: {"call": of the repair, "reply", "code",
    # "rejection", "failure"} before it
    repairs: list[dict[str, Any]] = field(default_factory=list)
    short: float = math.nan  # score after the short training of a cascade

    @property
    def calls(self) -> tuple[int, ...]:
        """Numbers of its calls: the first, then one for each repair; the last gave the reply."""
        return (self.call, *(before["call"] for before in self.repairs))

    @property
    def ok(self) -> bool:
        return math.isfinite(self.score)

    @property
    def components(self) -> dict[str, list[float]]:
        """Curves of the reward's components."""
        return {name: curve for name, curve in self.curves.items() if name not in (SCORE, REWARD)}

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON: numbers that are not finite are null, tuples are lists. Notes, repairs and the short
        score only if there are any."""
        content = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return {k: v for k, v in content.items() if v or k not in _SELDOM or v == 0}

    @classmethod
    def from_json(cls, content: Any) -> Individual:
        """Inverse of ``to_json``; null numbers become NaN, and texts of earlier versions become printable. Raises
        IndividualError."""
        if not isinstance(content, dict):
            raise IndividualError(f"found {show(content)}, expected an individual as an object")
        names = [f.name for f in fields(cls)]
        for name in content:
            if name not in names:
                near = nearest(str(name), names)
                raise IndividualError(f"unknown key {name!r}" + (f", nearest: {near!r}" if near else ""))
        content = {**_SELDOM, **content}
        missing = [name for name in names if name not in content]
        if missing:
            raise IndividualError(f"key {missing[0]!r} is missing")
        return cls(**{name: _READERS[name](content[name], name) for name in names})


@dataclass(frozen=True)
class Proposal:
    """Next request to a model."""

    operator: str
    parents: tuple[int, ...]
    island: int
    model: str
    messages: Messages  # none, if the search itself has made what it proposes
    graph_file: GraphFile | None = None


class Prompts(Protocol):
    """Turns what is known into messages; ``prompts.py`` for tasks in a physics engine. human: the reference, or
    None."""

    def initial(self) -> Messages: ...

    def improve(self, parent: Individual, human: Individual | None, refused: Sequence[Individual] = ()) -> Messages: ...

    def crossover(self, parents: Sequence[Individual], human: Individual | None) -> Messages: ...

    def repair(self, broken: Individual) -> Messages: ...

    def edit(self, parent: Individual, human: Individual | None, refused: Sequence[Individual] = ()) -> Messages: ...


class RewardSearch(Protocol):
    """``ask(iteration)`` depends on the settings and on the individuals of earlier iterations alone, and changes
    nothing. ``tell`` takes individuals in any order; one that it knows already is replaced. The human's (operator
    "human") is the reference that the messages compare with."""

    def ask(self, iteration: int) -> list[Proposal]: ...

    def tell(self, individuals: Sequence[Individual]) -> None: ...

    def best(self) -> Individual | None: ...

    @property
    def prompts(self) -> Prompts: ...


def best_of(individuals: Iterable[Individual]) -> Individual | None:
    """Individual with the highest score written by a model, the earlier among equals; None if none has one."""
    ranked = ranking(individuals)
    return ranked[0] if ranked else None


def ranking(individuals: Iterable[Individual]) -> list[Individual]:
    """Individuals written by a model that have a score, best first, equals in the order of ids."""
    return sorted((i for i in individuals if i.ok and i.operator != HUMAN), key=lambda i: (-i.score, i.id))


def curves_of(
    score: Sequence[float], reward: Sequence[float], components: Mapping[str, Sequence[float]]
) -> dict[str, list[float]]:
    """``Individual.curves``; a component that is called like one of the two others gets a longer name."""
    curves = {SCORE: list(score), REWARD: list(reward)}
    for name, values in components.items():
        while name in curves:
            name += " (component)"
        curves[name] = list(values)
    return curves


# ------------------------------------------------------------------------------------------------------- strict JSON


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return or_none(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _wrong(name: str, value: Any, expected: str) -> IndividualError:
    return IndividualError(f"key {name!r}: found {show(value)}, expected {expected}")


def _integer(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, value, "an integer")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    return printable(value)


def _number(value: Any, name: str) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _wrong(name, value, "a number or null")
    return float(value)


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(name, value, "a list")
    return value


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(name, value, "an object")
    return value


def _graph_file(value: Any, name: str) -> GraphFile | None:
    if value is None:
        return None
    try:
        return GraphFile(value)
    except GraphError as e:
        raise IndividualError(f"key {name!r}: {e}") from None


def _numbers(value: Any, name: str) -> list[float]:
    return [_number(v, name) for v in _list(value, name)]


def _operator(value: Any, name: str) -> str:
    if value not in OPERATORS:
        raise _wrong(name, value, f"one of {', '.join(OPERATORS)}")
    return str(value)


def _rejection(value: Any, name: str) -> tuple[str, str] | None:
    if value is None:
        return None
    if len(_list(value, name)) != 2:
        raise _wrong(name, value, "[stage, message] or null")
    return _text(value[0], name), _text(value[1], name)


def _repair(value: Any, name: str) -> dict[str, Any]:
    content = _object(value, name)
    if set(content) != {"call", "reply", "code", "rejection", "failure"}:
        raise _wrong(name, value, "objects with call, reply, code, rejection, failure")
    return {
        "call": _integer(content["call"], name), "reply": _text(content["reply"], name),
        "code": _text(content["code"], name), "rejection": _rejection(content["rejection"], name),
        "failure": None if content["failure"] is None else _text(content["failure"], name),
    }  # fmt: skip


def _interval(value: Any, name: str) -> tuple[float, float] | None:
    if value is None:
        return None
    if len(_list(value, name)) != 2:
        raise _wrong(name, value, "[low, high] or null")
    return _number(value[0], name), _number(value[1], name)


_SELDOM: dict[str, Any] = {"notes": [], "repairs": [], "short": None}  # left out of a line if there is nothing
_READERS: dict[str, Any] = {
    "short": _number,
    "id": _integer,
    "iteration": _integer,
    "island": _integer,
    "operator": _operator,
    "parents": lambda v, name: tuple(_integer(x, name) for x in _list(v, name)),
    "model": _text,
    "call": _integer,
    "reply": _text,
    "code": _text,
    "graph_file": _graph_file,
    "rejection": _rejection,
    "failure": lambda v, name: None if v is None else _text(v, name),
    "score": _number,
    "interval": _interval,
    "agent_scores": _numbers,
    "curves": lambda v, name: {k: _numbers(x, name) for k, x in _object(v, name).items()},
    "steps": _integer,
    "repairs": lambda v, name: [_repair(x, name) for x in _list(v, name)],
    "notes": lambda v, name: tuple(_text(x, name) for x in _list(v, name)),
    "tuned": lambda v, name: None if v is None else {k: _number(x, name) for k, x in _object(v, name).items()},
}
