"""The configuration that a world was evolved with, as its file holds it: checked before anyone relies on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from envolve.envs.worlds.file import WorldFile
from envolve.outer.config.check import Checker
from envolve.outer.config.yaml_lines import ConfigError


def stored_gtn(world: WorldFile) -> dict[str, Any]:
    """The section agents.gtn as it is stored. Raises ConfigError."""
    agents = world.config.get("agents")
    if not isinstance(agents, dict) or not isinstance(agents.get("gtn"), dict):
        raise ConfigError([f"{world.path}: config: found no section agents.gtn, expected the configuration of a run"])
    found: dict[str, Any] = agents["gtn"]
    return found


def stored_config(
    world: WorldFile,
    change: Callable[[dict[str, Any]], None] | None = None,
    options: Mapping[tuple[str, ...], str] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """A copy of the configuration, with all defaults -> it and warnings.

    change: what a command wants otherwise, done to the copy before it is checked; it finds the section agents.gtn.
    options: key -> the option that set it, for messages. Raises ConfigError.
    """
    stored_gtn(world)
    raw = copy.deepcopy(world.config)
    if change is not None:
        change(raw)
    checker = Checker(world.path, {(): 0}, dict(options or {}))
    config = checker.check(raw)
    if checker.problems:
        shorter = {f"{world.path}:0 ": f"{world.path}: config: "}
        shorter |= {f"{option} {'.'.join(key)}:": f"{option}:" for key, option in (options or {}).items()}
        for long, short in shorter.items():
            checker.problems = [p.replace(long, short) for p in checker.problems]
        raise ConfigError(checker.problems)
    return config, checker.warnings
