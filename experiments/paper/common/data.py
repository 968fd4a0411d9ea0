"""The data file of one experiment: what a command measured, for the figure that shows it.

    <results-dir>/paper/<experiment>/<task>[_<what>].json

One JSON object: experiment, task, settings (all arguments and seeds), versions, seconds (wall time), quick, and series,
label -> quantity -> values. These quantities are checked; any other list has a name of its own:

    return, train_steps              a number per run
    episode_return, episode_length   [runs][episodes]: the test return after each training episode, its steps
    failed                           a reason per run, "" where it is fine

JSON knows no NaN: it is written as null, and read as NaN.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envolve.core.files import TABLE_BYTES, read_plain
from envolve.envs.worlds.file import write_atomic
from envolve.outer.config.load import environment_info
from envolve.outer.reporting.plain import DataError, plain

PER_RUN = ("return", "train_steps")
PER_EPISODE = ("episode_return", "episode_length")
FAILED = "failed"
Series = dict[str, dict[str, list[Any]]]


@dataclass
class Data:
    """Measurements of one call of an experiment's command."""

    experiment: str
    task: str
    settings: dict[str, Any]
    quick: bool
    series: Series
    seconds: float
    versions: dict[str, str] = field(default_factory=environment_info)


TYPES: dict[str, Any] = {
    "experiment": str, "task": str, "settings": dict, "versions": dict, "seconds": (int, float), "quick": bool,
    "series": dict,
}  # fmt: skip


def data_path(results_dir: Path, experiment: str, task: str, what: str = "") -> Path:
    return results_dir / "paper" / experiment / f"{task}{f'_{what}' * bool(what)}.json"


def save(path: Path, data: Data) -> None:
    """Writes the file, its folder too. Raises DataError for values that are no data, OSError."""
    content = {name: plain(getattr(data, name), f"{path}: {name}") for name in TYPES}
    _check(path, content)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(str(path), (json.dumps(content, allow_nan=False) + "\n").encode())


def load(path: Path) -> Data:
    """Reads and checks it. Raises DataError."""
    try:
        content = json.loads(read_plain(path, TABLE_BYTES))
    except OSError as e:
        raise DataError(f"{path}: cannot be read: {e.strerror}") from None
    except (ValueError, RecursionError) as e:
        raise DataError(f"{path}: found no JSON ({e}), expected the data of an experiment") from None
    _check(path, content)
    for quantities in content["series"].values():
        for name, values in quantities.items():
            quantities[name] = _nan(values)
    return Data(**{name: content[name] for name in TYPES})


def is_full(path: Path) -> bool:
    """True if data of the full experiment exist there, which a quick look must not replace."""
    try:
        return not load(path).quick
    except DataError:
        return False


def _nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_nan(v) for v in value]
    return math.nan if value is None else value


def _check(path: Path, content: Any) -> None:
    if not isinstance(content, dict):
        raise DataError(f"{path}: found {type(content).__name__}, expected an object with {', '.join(TYPES)}")
    for key, kind in TYPES.items():
        if key not in content:
            raise DataError(f"{path}: key {key!r} is missing")
        value = content[key]
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            words = "number" if isinstance(kind, tuple) else kind.__name__
            raise DataError(f"{path}: key {key!r}: found {type(value).__name__}, expected {words}")
    for key in content:
        if key not in TYPES:
            raise DataError(f"{path}: key {key!r} is not expected; known: {', '.join(TYPES)}")
    for label, quantities in content["series"].items():
        where = f"{path}: key 'series.{label}'"
        if not isinstance(quantities, dict):
            raise DataError(f"{where}: found {type(quantities).__name__}, expected quantities by name")
        _check_series(where, quantities)


def _check_series(where: str, quantities: dict[str, Any]) -> None:
    runs: dict[str, int] = {}
    for name, values in quantities.items():
        if not isinstance(values, list):
            raise DataError(f"{where}.{name}: found {type(values).__name__}, expected a list")
        if name in (*PER_RUN, *PER_EPISODE, FAILED):
            runs[name] = len(values)
        rows = values if name in PER_EPISODE else [values]
        if not all(isinstance(row, list) for row in rows):
            raise DataError(f"{where}.{name}: found no lists, expected [runs][episodes]")
        for value in (v for row in rows for v in row):
            if name in (*PER_RUN, *PER_EPISODE) and not _number(value):
                raise DataError(f"{where}.{name}: found {value!r}, expected a number or null")
            if name == FAILED and not isinstance(value, str):
                raise DataError(f"{where}.{name}: found {value!r}, expected a reason")
    if len(set(runs.values())) > 1:
        found = ", ".join(f"{n} of {name}" for name, n in runs.items())
        raise DataError(f"{where}: found {found}, expected as many of each")
    for a, b in zip(*(quantities.get(name, []) for name in PER_EPISODE)):
        if len(a) != len(b):
            raise DataError(f"{where}: found {len(a)} returns and {len(b)} lengths of a run's episodes")


def _number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
