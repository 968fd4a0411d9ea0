"""A list of long experiments, computed one after the other and recorded: ``envolve paper queue``.

Each experiment is a command of ``envolve`` that goes on where it was stopped. It runs as a process of its own on some
of the cores. The record ``<results-dir>/paper/queue.json`` holds the command, the commit, versions, CPU seconds and the
digest of every data file, so that a figure drawn later can be traced to what made it.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from envolve.core import listener
from envolve.core.child import end_process, ends_with_parent
from envolve.core.command_table import COMMANDS
from envolve.core.commands import flags_of
from envolve.core.files import TABLE_BYTES, TEXT_BYTES, read_plain
from envolve.core.registry import nearest
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.config.load import ConfigError, environment_info
from envolve.outer.config.yaml_lines import parse_yaml, show

RECORD = "queue.json"
COMPLETE, FAILED, STOPPED = "complete", "failed", "stopped"
WAITING, UNRECORDED, CHANGED, DAMAGED = "waiting", "unrecorded", "changed", "damaged"  # by ``state``, never stored
FIELDS: dict[str, Any] = {"about": str, "command": list, "cpu_hours": (int, float), "needs": list, "keeps": list}
DEFAULTS: dict[str, Any] = {"needs": [], "keeps": []}
GIVEN = ("--results-dir", "--json", "--resume")  # the queue's own affair


@dataclass(frozen=True)
class Experiment:
    """One entry of the list."""

    name: str
    about: str
    command: tuple[str, ...]  # words behind ``envolve``
    cpu_hours: float  # an estimate
    needs: tuple[str, ...]  # names of experiments that come before it
    keeps: tuple[str, ...]  # patterns of its data files, below <results-dir>/paper


@dataclass
class ExperimentRecord:
    """What is known of an experiment that has begun. ``cpu_seconds`` adds up over interruptions."""

    command: list[str]
    status: str = STOPPED
    exit_code: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)  # with the commit
    files: dict[str, str] = field(default_factory=dict)  # path below <results-dir>/paper -> SHA-256


# ------------------------------------------------------------------------------------------------------------ the list


def read_queue(path: Path) -> list[Experiment]:
    """The list of a YAML file, each experiment behind what it needs. Raises ConfigError with all problems."""
    try:
        raw = read_plain(path, TEXT_BYTES)
    except OSError as e:
        raise ConfigError([f"{path}: {e.strerror}, expected a list of experiments"]) from None
    content, lines = parse_yaml(raw, str(path))
    if not isinstance(content, dict) or not content:
        raise ConfigError([f"{path}: found {show(content)}, expected names of experiments with their keys"])
    problems: list[str] = []
    for name, entry in content.items():
        problems += [f"{path}:{lines.get((name,), 1)}: {name}{problem}" for problem in _problems(entry, content, name)]
    if problems:
        raise ConfigError(problems)
    queue = {}
    for name, entry in content.items():
        values = {**DEFAULTS, **entry}
        queue[name] = Experiment(
            name,
            values["about"],
            tuple(values["command"]),
            float(values["cpu_hours"]),
            tuple(values["needs"]),
            tuple(values["keeps"]),
        )
    return _ordered(queue, path)


def _problems(entry: Any, names: Mapping[str, Any], name: str) -> list[str]:
    if not isinstance(entry, dict):
        return [f": found {show(entry)}, expected the keys {', '.join(FIELDS)}"]
    out = [f".{key}: unknown{_nearest(key, FIELDS)}" for key in entry if key not in FIELDS]
    for key, kind in FIELDS.items():
        value = entry.get(key, DEFAULTS.get(key))
        if value is None:
            out.append(f".{key}: missing")
        elif isinstance(value, bool) or not isinstance(value, kind):
            expected = {list: "a list of words", str: "text"}.get(kind, "a number")
            out.append(f".{key}: found {show(value)}, expected {expected}")
        elif kind is list and not all(isinstance(word, str) for word in value):
            out.append(f".{key}: found {show(value)}, expected words; put numbers into quotation marks")
    if out:
        return out
    out += [f".needs: found {n!r}{_nearest(n, names)}" for n in entry.get("needs", []) if n not in names or n == name]
    command = entry["command"]
    named = next((c for c in (" ".join(command[:2]), " ".join(command[:1])) if c in COMMANDS), None)
    known = [name for name, c in COMMANDS.items() if "--results-dir" in flags_of(c)]
    if named not in known:
        out.append(f".command: found {' '.join(command[:2])!r}{_nearest(' '.join(command[:2]), known)}")
    out += [f".command: found {word}, expected none: the queue gives it" for word in command if word in GIVEN]
    for pattern in entry.get("keeps", []):
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            out.append(f".keeps: found {pattern!r}, expected a path below <results-dir>/paper")
    if entry["cpu_hours"] <= 0:
        out.append(f".cpu_hours: found {entry['cpu_hours']}, expected a positive number")
    return out


def _nearest(word: str, known: Any) -> str:
    near = nearest(str(word), map(str, known))
    return f"; nearest: {near}" if near else f"; expected one of {', '.join(sorted(map(str, known)))}"


def _ordered(queue: dict[str, Experiment], path: Path) -> list[Experiment]:
    """As listed, but behind what they need. Raises ConfigError if needs go round in a circle."""
    done: dict[str, Experiment] = {}
    left = dict(queue)
    while left:
        free = next((e for e in left.values() if all(n in done for n in e.needs)), None)
        if free is None:
            raise ConfigError([f"{path}: {', '.join(left)} need each other, expected no circle"])
        done[free.name] = left.pop(free.name)
    return list(done.values())


def chosen(queue: Sequence[Experiment], names: Sequence[str]) -> list[Experiment]:
    """These and what they need; all if none is named. Raises ConfigError."""
    known = {e.name: e for e in queue}
    wrong = [n for n in names if n not in known]
    if wrong:
        raise ConfigError([f"--only: found {n!r}{_nearest(n, known)}" for n in wrong])
    wanted = set(names) or set(known)
    for experiment in reversed(queue):  # behind what they need
        if experiment.name in wanted:
            wanted |= set(experiment.needs)
    return [e for e in queue if e.name in wanted]


# ----------------------------------------------------------------------------------------------------------- the record


def read_records(folder: Path) -> dict[str, ExperimentRecord]:
    """Records by name. Raises RunError for another content."""
    path = folder / RECORD
    if not path.exists():
        return {}
    try:
        content = json.loads(read_plain(path, TABLE_BYTES))
        return {str(name): ExperimentRecord(**values) for name, values in content.items()}
    except (OSError, ValueError, TypeError, AttributeError) as e:
        raise RunError(f"{path}: {str(e)[:100]}; expected what envolve paper queue writes") from None


def write_records(folder: Path, records: Mapping[str, ExperimentRecord]) -> None:
    """Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {name: asdict(record) for name, record in records.items()}
    write_atomic(str(folder / RECORD), (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


def state(experiment: Experiment, record: ExperimentRecord | None, folder: Path) -> str:
    """One word: waiting, stopped, failed, complete; unrecorded: its data are there, made by another command than the
    queue's; changed: the list has another command now; damaged: a data file is missing or not what was recorded."""
    if record is None:
        return UNRECORDED if digests(experiment, folder) else WAITING
    if record.command != list(experiment.command):
        return CHANGED
    if record.status == COMPLETE and digests(experiment, folder) != record.files:
        return DAMAGED
    return record.status


def digests(experiment: Experiment, folder: Path) -> dict[str, str]:
    """SHA-256 of the experiment's data files, by path below ``folder``."""
    paths = {p for pattern in experiment.keeps for p in folder.glob(pattern) if p.is_file()}
    return {
        str(p.relative_to(folder)): hashlib.sha256(read_plain(p, TABLE_BYTES)).hexdigest()
        for p in sorted(paths) if not p.name.endswith(".part.json")
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- computing


def compute(
    experiment: Experiment, results: Path, cores: int, records: dict[str, ExperimentRecord]
) -> ExperimentRecord:
    """Runs one experiment to its end, and keeps its record up to date. Raises KeyboardInterrupt: what it has finished
    is kept, and its record says that it was stopped."""
    folder = results / "paper"
    record = records.get(experiment.name)
    if record is None or record.command != list(experiment.command):
        record = ExperimentRecord(list(experiment.command))
    records[experiment.name] = record
    before, began = _children_cpu(), time.monotonic()
    command = [sys.executable, "-m", "envolve", *experiment.command, "--results-dir", str(results)]
    allowed = sorted(os.sched_getaffinity(0))[-cores:]
    tie = ends_with_parent()

    def prepare() -> None:
        tie()
        os.sched_setaffinity(0, allowed)  # programs start a worker per core that they may use

    process, code = None, 128 + 2  # of one that is stopped
    try:
        record.versions = environment_info()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env={**os.environ, listener.QUIET: "1"},
            start_new_session=True,
            preexec_fn=prepare,
        )
        code = process.wait()
    finally:
        if process is not None:
            end_process(process, 3.0)
        record.exit_code = code
        record.status = COMPLETE if code == 0 else STOPPED if code in (130, 143) else FAILED
        record.cpu_seconds = round(record.cpu_seconds + _children_cpu() - before, 1)
        record.wall_seconds = round(record.wall_seconds + time.monotonic() - began, 1)
        record.files = digests(experiment, folder) if code == 0 else {}
        write_records(folder, records)
    if code == 0 and not record.files and experiment.keeps:
        record.status = FAILED
        write_records(folder, records)
        raise RunError(f"{experiment.name}: it ended without a file like {experiment.keeps[0]} below {folder}")
    return record


def _children_cpu() -> float:
    """Seconds of children that have ended, with theirs."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
