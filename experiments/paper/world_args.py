"""What the commands that look into worlds are asked alike: which worlds, how many, and where all lies."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from envs.world_file import WorldFile
from experiments.paper.comparison import CompareArgs, find_worlds
from outer.config import ConfigError


@dataclass
class WorldArgs:
    worlds: int | None = None
    """How many, the best."""
    agents: int | None = None
    """Agents per world (or per value of what is varied)."""
    seed: int = 0
    """Of the agents; none of the seeds was used in an evolution."""
    threads: int = 0
    """CPU threads, 0: all."""
    set: Annotated[list[str], tyro.conf.arg(metavar="KEY=VALUE ...")] = field(default_factory=list)
    """Values of CONFIG, as train_proxy.py had them."""
    name: str | None = None
    """The --name of train_proxy.py."""
    quick: tyro.conf.FlagCreatePairsOff[bool] = False
    """A minute's look; worlds that are missing are evolved first (train_proxy.py --quick)."""
    results_dir: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("results")
    """Where the worlds are, and the data go."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The data file; default: <results-dir>/paper/<experiment>/<task>[_<what>].json."""


def find(args: WorldArgs, config: Path, count: int, **kind: Any) -> list[WorldFile]:
    """The best ``count`` worlds of one kind (mode=... or vary_hp=...). Raises ConfigError, WorldFileError."""
    compare = CompareArgs(config, set=args.set, name=args.name, quick=args.quick, results_dir=args.results_dir)
    return find_worlds(compare, count, **kind)


def check_numbers(args: WorldArgs, **others: int | None) -> int:
    """-> threads. others: further options that must be 1 or more. Raises ConfigError."""
    least_one = {"--worlds": args.worlds, "--agents": args.agents, **{f"--{k}": v for k, v in others.items()}}
    for option, value, least in (
        *((k, v, 1) for k, v in least_one.items()), ("--seed", args.seed, 0), ("--threads", args.threads, 0),
    ):  # fmt: skip
        if value is not None and value < least:
            raise ConfigError([f"{option}: found {value}, expected at least {least}"])
    return args.threads or len(os.sched_getaffinity(0))
