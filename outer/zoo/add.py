"""Adds the world of a run to the shelf: file and card, both or none."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envolve.envs.outside.build import file_and_class, is_outside
from envolve.envs.worlds.file import FIRST, MODEL, WorldFileError, read_world, write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.config.load import ConfigError, load_config
from envolve.outer.names import CONFIG_FILE
from envolve.outer.reporting.names import return_range
from envolve.outer.zoo.card import card_of, reported
from envolve.outer.zoo.convert import task_id, zoo_bytes
from envolve.outer.zoo.measure import Measuring, held, measured
from envolve.worlds.file import read_world as read_zoo
from envolve.worlds.shelf import CARD, TENSORS, ZOO_BYTES


def add(run_dir: Path, shelf: Path, how: Measuring, distilled: bool = False, afresh: bool = False) -> str:
    """The name of the new world. how: the unseen agents that are trained if the run has no report, or ``afresh``;
    distilled: the world that the run began with, not the evolved one. Raises WorldFileError, ConfigError, RunError,
    OSError."""
    file = FIRST if distilled else MODEL
    if not (run_dir / file).is_file():
        run = "the folder of a run" + (" with agents.gtn.init: distilled" if distilled else "")
        raise ConfigError([f"found no {file} in {str(run_dir)!r}, expected {run}"])
    world = read_world(str(run_dir / file))
    data = zoo_bytes(world)
    if len(data) > ZOO_BYTES:
        words = "smaller networks (envs.<task>.hidden_size) make a smaller file"
        raise WorldFileError(f"{world.path}: found a file of {len(data):,} bytes, expected {ZOO_BYTES:,}: {words}")
    config = load_config(run_dir / CONFIG_FILE).data
    check_plain(run_dir, config)
    figures = None if distilled or afresh else reported(run_dir)
    if figures is None:
        figures = measured(run_dir, config, file, how)
    name = free_name(shelf, f"{task_id(world.env_name)}-bandit")
    policy = _held(data, return_range(config))
    card = {**card_of(run_dir, name, world, data, figures), "policy": policy}
    shelf.mkdir(parents=True, exist_ok=True)
    write_atomic(str(shelf / f"{name}{CARD}"), (json.dumps(card, indent=1, allow_nan=False) + "\n").encode())
    write_atomic(str(shelf / f"{name}{TENSORS}"), data)  # last: a file on the shelf is a world
    return name


def _held(data: bytes, bounds: tuple[float, float] | None) -> dict[str, Any]:
    """The figures of the policy that a world of the zoo holds. An environment that nobody can make by its id alone,
    because another package has to be imported first, has none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"world{TENSORS}"
        path.write_bytes(data)
        world = read_zoo(path)
    try:
        return held(world, bounds)
    except RunError as e:
        return {"mean_return": None, "interval": None, "episodes": 0, "failed": str(e)}


def check_plain(run_dir: Path, config: Mapping[str, Any]) -> None:
    """A card names the task by its id, and the file its wrappers. Raises ConfigError."""
    name = config["env_name"]
    if is_outside(name) and file_and_class(name) is not None:
        words = "the id of an installed environment, or a task of this project: a card cannot name a file of yours"
        raise ConfigError([f"{run_dir}: found the task {name}, expected {words}"])
    arguments = config["envs"].get(name, {}).get("env_kwargs")
    if arguments:
        words = f"none: a world of the zoo is for the task that {task_id(name)!r} names"
        raise ConfigError([f"{run_dir}: found env_kwargs {arguments!r:.200}, expected {words}"])


def free_name(shelf: Path, name: str) -> str:
    """``name``, or with the next number behind it."""
    names = [name, *(f"{name}-{i}" for i in range(2, 10_000))]
    return next(n for n in names if not (shelf / f"{n}{TENSORS}").exists())
