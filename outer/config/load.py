"""Reads, checks and writes configurations: YAML in the original's layout -> one plain nested dict.

All problems of a file are collected and reported together, each in one line:
``file:line key: found X, expected Y, did you mean Z``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import yaml

from envolve.core import plugins
from envolve.core.files import read_plain
from envolve.core.places import shipped
from envolve.core.registry import nearest
from envolve.envs.managers.library import is_managed
from envolve.envs.outside.build import DESCRIPTION_FILE, canonical, file_and_class, is_outside
from envolve.envs.section import EnvSection
from envolve.envs.shaping.section import ShapedSection
from envolve.envs.task import ARGUMENTS_KEY
from envolve.envs.worlds.file import write_atomic
from envolve.outer.config.check import Checker
from envolve.outer.config.describe import describe
from envolve.outer.config.header import header_lines
from envolve.outer.config.legacy import LEGACY_KEYS
from envolve.outer.config.outside import OUTSIDE_KEYS, override_path
from envolve.outer.config.problem import RunSection
from envolve.outer.config.references import References
from envolve.outer.config.schema import defaults, valid_keys
from envolve.outer.config.versions import environment_info
from envolve.outer.config.yaml_lines import ConfigError, Path, override_value, parse_yaml, show, split_override
from envolve.outer.names import CONFIG_FILE
from envolve.outer.plugins import own

__all__ = ["Config", "ConfigError", "describe", "dump_config", "environment_info", "load_config"]

MAX_BYTES = 1_000_000
OF_ONE_TASK = ("max_steps", "solved_reward", "test_steps", "info_dim", *OUTSIDE_KEYS)


@dataclasses.dataclass(frozen=True)
class Config:
    """Checked configuration. data: plain values, every default filled in; path: the source file."""

    data: dict[str, Any]
    warnings: list[str]
    path: str


def read_bytes(path: str, pattern: str = "default_config_*.yaml") -> bytes:
    """Text of a file of at most MAX_BYTES. pattern: of the files to suggest for a misspelt name. Raises ConfigError."""
    try:
        return read_plain(path, MAX_BYTES)
    except OSError as e:
        if FilePath(path).is_dir():
            raise ConfigError([f"{path}: found a folder, expected a YAML configuration"]) from None
        try:
            folder = FilePath(path).parent
            there = sorted(p.name for p in folder.glob(pattern) if p.is_file() and p != FilePath(path))
            near = nearest(FilePath(path).name, there, cutoff=0.0)
        except (OSError, ValueError):
            near = None
        mean = f", did you mean {folder / near}" if near else ""
        words = f"found no readable file ({e.strerror}), expected a YAML configuration"
        raise ConfigError([f"{path}: {words}{mean}"]) from None


def _override(data: dict[str, Any], text: str, problems: list[str]) -> tuple[Path, str] | None:
    """Applies ``agents.gtn.max_iterations=3`` to raw data in place -> its path and its name in messages."""
    try:
        key, value = split_override(text)
    except ConfigError as e:
        problems.extend(e.problems)
        return None
    keys, path = valid_keys(), override_path(key)
    if len(path) == 3 and path[0] == "envs" and path[2] == ARGUMENTS_KEY and own("task", path[1]) is not None:
        keys.append(key)
    if is_outside(path[1] if len(path) == 3 else None) and path[2] in (*OUTSIDE_KEYS, *defaults(EnvSection)):
        keys.append(key)
    if len(path) == 3 and is_managed(path[1]):
        keys += [f"envs.{path[1]}.{name}" for name in defaults(ShapedSection)]
    if key not in keys:
        last = key.split(".")[-1]
        legacy = [reasons[last] for reasons in LEGACY_KEYS.values() if last in reasons]
        found = f"a key of the original that is ignored here ({legacy[0]})" if legacy else "an unknown key"
        near = last if last in defaults(RunSection) else nearest(key, keys, cutoff=0.0)
        problems.append(f"--set {show(key)}: found {found}, expected a dotted key, did you mean {near}")
        return None
    try:
        parsed = override_value(key, value)
    except ConfigError as e:
        problems.extend(e.problems)
        return None
    at: Any = data
    for part in path[:-1]:
        at = at.setdefault(part, {})
        if not isinstance(at, dict):
            return None  # the file's section is no mapping, which is reported as such
    at[path[-1]] = parsed
    return path, "--set"


@dataclasses.dataclass(frozen=True)
class TaskChoice:
    """Another task than the file's: its name, and how an environment from outside is made."""

    name: str
    wrappers: Sequence[str] = ()
    env_kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def apply(self, raw: dict[str, Any]) -> None:
        """Sets the task in a raw configuration. Its section is its own or, if there is none, that of the file's task
        without what is a fact of that task alone."""
        before, raw["env_name"] = raw.get("env_name"), self.name
        if not isinstance(raw.setdefault("envs", {}), dict):
            return  # reported as such
        section = raw["envs"].get(self.name, raw["envs"].get(before))
        if not isinstance(section, dict):
            section = {}
        if self.name not in raw["envs"]:
            section = {key: value for key, value in section.items() if key not in OF_ONE_TASK}
        own = {"wrappers": list(self.wrappers), ARGUMENTS_KEY: dict(self.env_kwargs)}
        raw["envs"][self.name] = {**section, **{key: value for key, value in own.items() if value}}


def read_kwargs(texts: Sequence[str]) -> dict[str, Any]:
    """``["size=5"]`` -> ``{"size": 5}``. Raises ConfigError."""
    out = {}
    for text in texts:
        key, equals, value = text.partition("=")
        try:
            out[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            equals = ""
        if not equals or not key.isidentifier():
            raise ConfigError([f"--env-kwargs: found {text!r:.80}, expected KEY=VALUE, an argument of the environment"])
    return out


def load_config(path: str | FilePath, overrides: Sequence[str] = (), task: TaskChoice | None = None) -> Config:
    """Reads a YAML file, applies overrides such as ``agents.gtn.max_iterations=3`` (values are YAML) and checks it all.
    task: another one than the file's.

    Raises ConfigError with every problem found, and nothing else.
    """
    name = str(shipped(path))
    raw, lines = parse_yaml(read_bytes(name), name)
    if not isinstance(raw, dict):
        found = "an empty file" if raw is None else show(raw)
        raise ConfigError([f"{name}:1: found {found}, expected a mapping with env_name, agents and envs"])
    chosen: dict[Path, str] = {}
    if task is not None:
        task.apply(raw)
        chosen = {("env_name",): "--task", ("envs", task.name): f"--task: {name}"}
    return _checked(raw, overrides, name, lines, chosen, FilePath(name).parent)


def config_of(values: Mapping[str, Any], overrides: Sequence[str] = (), name: str = "configuration") -> Config:
    """The same for a mapping that a program has made; files of the user's own lie relative to the working folder.

    Raises ConfigError.
    """
    return _checked(_plain(copy.deepcopy(dict(values))), overrides, name, {}, {(): name}, FilePath())


def _plain(value: Any) -> Any:
    """A mapping whose numbers may be NumPy's -> one of Python's."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _checked(
    raw: dict[str, Any],
    overrides: Sequence[str],
    name: str,
    lines: dict[Path, int],
    known: dict[Path, str],
    folder: FilePath,
) -> Config:
    """folder: where files of the user's own lie that the configuration names."""
    if overrides:  # keys of such files must be known; what is wrong with them is said below
        References(Checker(name, dict(lines), dict(known), folder), raw).resolved()
    problems: list[str] = []
    applied = [_override(raw, text, problems) for text in overrides]
    checker = Checker(name, lines, {**known, **dict(a for a in applied if a)}, folder)
    data = checker.check(raw)
    if problems or checker.problems:
        raise ConfigError(problems + checker.problems, checker.warnings)
    return Config(data, checker.warnings, name)


def store_config(run_dir: FilePath, config: Config, extra: Mapping[str, Any] | None = None) -> None:
    """``config.yaml`` in a run's folder, and beside it copies of the files of the user's own that it names. Raises
    OSError."""
    for file, data in plugins.copies(config.data).items():
        write_atomic(str(run_dir / file), data)
    name = str(config.data.get("env_name"))
    if is_outside(name):
        section, reference = config.data["envs"][name], file_and_class(name)
        write_atomic(str(run_dir / DESCRIPTION_FILE), canonical(name, section))
        if reference is not None:
            write_atomic(str(run_dir / reference[0]), plugins.content_of(section["sha256"]))
    write_atomic(str(run_dir / CONFIG_FILE), dump_config(config, extra).encode())


def dump_config(config: Config, extra: Mapping[str, Any] | None = None) -> str:
    """Resolved configuration as YAML that :func:`load_config` reads back to the same data. Its header of comments names
    the versions, the commit, the random seed, the source file and what ``extra`` adds."""
    seed = {"seed": config.data["seed"]} if "seed" in config.data else {}
    header = {**environment_info(), **seed, "source": config.path, **(extra or {})}
    body = yaml.safe_dump(config.data, sort_keys=False, default_flow_style=False, allow_unicode=True, width=120)
    return "\n".join(["# Resolved configuration: every value that the run used.", *header_lines(header), "", body])
