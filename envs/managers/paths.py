"""Numbers of a task's own configuration that candidates may change: weights and parameters of its terms.

A number is named by its path, e.g. ``rewards.upright.weight``, ``rewards.upright.std``, ``terminations.fell_over.
limit_angle``, ``events.reset_base.pose_range.yaw.0``, ``commands.twist.ranges.lin_vel_x.1``, ``actions.effort.scale``.
"""

from __future__ import annotations

import dataclasses
from copy import copy
from typing import Any, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

from envolve.core.registry import nearest

Keys = Tuple[Any, ...]  # from a term's parameters to a number
WEIGHT = "weight"


class NumberPlace(NamedTuple):
    """Where a number is."""

    section: str
    term: str
    keys: Keys
    value: float  # the task's


def places(cfg: Any) -> Dict[str, NumberPlace]:
    """All numbers of a configuration that a candidate may change, by path. Events at startup are left out: they happen
    before there are candidates."""
    found: Dict[str, NumberPlace] = {}

    def add(section: str, term: str, keys: Keys, value: float) -> None:
        path = ".".join([section, term, *map(str, keys)])
        found[path] = NumberPlace(section, term, keys, float(value))

    for name, term in section(cfg, "rewards").items():
        if term is not None:
            add("rewards", name, (WEIGHT,), term.weight)
            for keys, value in _leaves(term.params):
                add("rewards", name, keys, value)
    for name, term in section(cfg, "terminations").items():
        if term is not None and not term.time_out:
            for keys, value in _leaves(term.params):
                add("terminations", name, keys, value)
    for name, term in section(cfg, "events").items():
        if term is not None and term.mode in ("reset", "interval"):
            for keys, value in _leaves(term.params):
                add("events", name, keys, value)
    for name, term in section(cfg, "commands").items():
        if term is not None:
            for keys, value in _leaves(term):
                if keys[0] not in ("viz", "debug_vis"):
                    add("commands", name, keys, value)
    for name, term in section(cfg, "actions").items():
        if term is not None and hasattr(term, "scale"):
            for keys, value in _leaves({"scale": term.scale}):
                add("actions", name, keys, value)
    return found


def section(cfg: Any, name: str) -> Dict[str, Any]:
    """Terms of a part of a configuration: a dictionary in mjlab, attributes or None in Isaac Lab."""
    found = getattr(cfg, name, None)
    return dict(found if isinstance(found, dict) else vars(found) if found is not None else {})


def _leaves(part: Any) -> Iterator[Tuple[Keys, float]]:
    """Numbers within dictionaries, tuples, lists and records, with their keys."""
    if isinstance(part, dict):
        items: Sequence[Tuple[Any, Any]] = list(part.items())
    elif isinstance(part, (tuple, list)):
        items = list(enumerate(part))
    elif dataclasses.is_dataclass(part) and type(part).__name__ != "SceneEntityCfg":
        items = [(f.name, getattr(part, f.name)) for f in dataclasses.fields(part)]
    else:
        return
    for key, value in items:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield (key,), float(value)
        else:
            for rest, number in _leaves(value):
                yield (key, *rest), number


def changed(part: Any, keys: Keys, value: Any) -> Any:
    """A copy of ``part`` with another number; what is not on the way is shared."""
    if not keys:
        return value
    first, rest = keys[0], keys[1:]
    if isinstance(part, dict):
        return {**part, first: changed(part[first], rest, value)}
    if isinstance(part, (tuple, list)):
        return type(part)(changed(x, rest, value) if i == first else x for i, x in enumerate(part))
    out = copy(part)
    setattr(out, first, changed(getattr(part, first), rest, value))
    return out


def unknown(paths: Sequence[str], cfg: Any, task: str) -> Optional[str]:
    """What is wrong with a candidate's paths, in one line; None: nothing."""
    known = places(cfg)
    for path in paths:
        if path not in known:
            near = nearest(path, known, cutoff=0.0)
            return f"{task} has no number {path!r}" + (f", did you mean {near!r}" if near else "")
    return None
