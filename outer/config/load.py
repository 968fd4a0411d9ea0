"""Reads, checks and writes configurations: YAML in the original's layout -> one plain nested dict.

All problems of a file are collected and reported together, each in one line:
``file:line key: found X, expected Y, did you mean Z``.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import yaml

from envolve.core.files import read_plain
from envolve.core.places import CODE
from envolve.outer.config.check import Checker
from envolve.outer.config.describe import describe
from envolve.outer.config.legacy import LEGACY_KEYS
from envolve.outer.config.schema import nearest, valid_keys
from envolve.outer.config.yaml_lines import ConfigError, Path, override_value, parse_yaml, show, split_override

__all__ = ["Config", "ConfigError", "describe", "dump_config", "environment_info", "load_config"]

MAX_BYTES = 1_000_000


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
    keys = valid_keys()
    if key not in keys:
        last = key.split(".")[-1]
        legacy = [reasons[last] for reasons in LEGACY_KEYS.values() if last in reasons]
        found = f"a key of the original that is ignored here ({legacy[0]})" if legacy else "an unknown key"
        near = nearest(key, keys, cutoff=0.0)
        problems.append(f"--set {show(key)}: found {found}, expected a dotted key, did you mean {near}")
        return None
    try:
        parsed = override_value(key, value)
    except ConfigError as e:
        problems.extend(e.problems)
        return None
    path = tuple(key.split("."))
    at: Any = data
    for part in path[:-1]:
        at = at.setdefault(part, {})
        if not isinstance(at, dict):
            return None  # the file's section is no mapping, which is reported as such
    at[path[-1]] = parsed
    return path, "--set"


def load_config(path: str | FilePath, overrides: Sequence[str] = ()) -> Config:
    """Reads a YAML file, applies overrides such as ``agents.gtn.max_iterations=3`` (values are YAML) and checks it all.

    Raises ConfigError with every problem found, and nothing else.
    """
    name = str(path)
    raw, lines = parse_yaml(read_bytes(name), name)
    if not isinstance(raw, dict):
        found = "an empty file" if raw is None else show(raw)
        raise ConfigError([f"{name}:1: found {found}, expected a mapping with env_name, agents and envs"])
    problems: list[str] = []
    applied = [_override(raw, text, problems) for text in overrides]
    checker = Checker(name, lines, dict(a for a in applied if a))
    data = checker.check(raw)
    if problems or checker.problems:
        raise ConfigError(problems + checker.problems, checker.warnings)
    return Config(data, checker.warnings, name)


def environment_info() -> dict[str, str]:
    """Versions that a run's numbers depend on, and this project's commit (``+dirty``: with local changes)."""
    info = {"python": platform.python_version()}
    for package in ("torch", "numpy", "numba", "gymnasium", "mujoco"):
        try:
            info[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            info[package] = "unknown"
    return {**info, "git": _git_hash()}


def _git_hash() -> str:
    if not (CODE / ".git").exists():  # not a checkout, perhaps inside another project's
        return "unknown"
    command = [
        "git",
        "--no-optional-locks",
        "-C",
        str(CODE),
        "describe",
        "--always",
        "--abbrev=40",
        "--exclude=*",
        "--dirty=+dirty",
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}  # a git hook sets GIT_DIR
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def dump_config(config: Config, extra: Mapping[str, Any] | None = None) -> str:
    """Resolved configuration as YAML that :func:`load_config` reads back to the same data. Its header of comments names
    the versions, the commit, the random seed, the source file and what ``extra`` adds."""
    seed = {"seed": config.data["seed"]} if "seed" in config.data else {}
    header = {**environment_info(), **seed, "source": config.path, **(extra or {})}
    lines = [f"# {json.dumps(str(k))[1:-1]}: {json.dumps(str(v))[1:-1]}" for k, v in header.items()]
    body = yaml.safe_dump(config.data, sort_keys=False, default_flow_style=False, allow_unicode=True, width=120)
    return "\n".join(["# Resolved configuration: every value that the run used.", *lines, "", body])
