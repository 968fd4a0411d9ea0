"""Arguments of the commands that look into worlds: which worlds, how many, and their folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envolve.core import commands
from envolve.envs.worlds.file import WorldFile, read_world
from envolve.experiments.command_line import check_count
from envolve.experiments.paper.common.command import DataArgs
from envolve.experiments.paper.common.comparison import CompareArgs, find_worlds
from envolve.outer.config.load import ConfigError


@dataclass
class WorldArgs(DataArgs):
    worlds: int | None = None
    """Number of best worlds."""
    agents: int | None = None
    """Number of agents per world."""


def find(args: WorldArgs, config: Path, count: int, **kind: Any) -> list[WorldFile]:
    """The best ``count`` worlds of one kind (mode=... or vary_hp=...). Raises ConfigError, WorldFileError."""
    compare = CompareArgs(config, set=args.set, name=args.name, quick=args.quick, results_dir=args.results_dir)
    return find_worlds(compare, count, **kind)


def read_named(option: str, path: Path) -> WorldFile:
    """The world in a file that was asked for. Raises ConfigError, WorldFileError."""
    if not path.exists():
        raise ConfigError([f"{option}: found no {str(path)!r}{commands.near_file(str(path))}"])
    return read_world(str(path))


def check_numbers(args: WorldArgs, **others: int | None) -> int:
    """-> threads. others: further options that must be 1 or more. Raises ConfigError."""
    least_one = {"--worlds": args.worlds, "--agents": args.agents, **{f"--{k}": v for k, v in others.items()}}
    for option, value, least in (
        *((k, v, 1) for k, v in least_one.items()), ("--seed", args.seed, 0), ("--threads", args.threads, 0),
    ):  # fmt: skip
        check_count(option, value, least)
    return args.threads or len(os.sched_getaffinity(0))
