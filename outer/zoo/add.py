"""Adds the world of a run to the shelf: file and card, both or none."""

from __future__ import annotations

import json
from pathlib import Path

from envolve.envs.worlds.file import WorldFileError, read_world, write_atomic
from envolve.outer.config.load import CONFIG_FILE, ConfigError, load_config
from envolve.outer.zoo.card import card_of, measured, reported
from envolve.outer.zoo.convert import task_id, zoo_bytes
from envolve.worlds.shelf import CARD, TENSORS, ZOO_BYTES


def add(run_dir: Path, shelf: Path, agents: int, steps: int, workers: int) -> str:
    """The name of the new world. agents, steps: of the unseen agents that are trained if the run has no report.
    Raises WorldFileError, ConfigError, RunError, OSError."""
    if not (run_dir / "model.pt").is_file():
        raise ConfigError([f"found no model.pt in {str(run_dir)!r}, expected the folder of a run"])
    world = read_world(str(run_dir / "model.pt"))
    data = zoo_bytes(world)
    if len(data) > ZOO_BYTES:
        words = "smaller networks (envs.<task>.hidden_size) make a smaller file"
        raise WorldFileError(f"{world.path}: found a file of {len(data):,} bytes, expected {ZOO_BYTES:,}: {words}")
    figures = reported(run_dir)
    if figures is None:
        config = load_config(run_dir / CONFIG_FILE)
        figures = measured(run_dir, config.data, agents, steps, workers)
    name = free_name(shelf, f"{task_id(world.env_name)}-bandit")
    card = card_of(run_dir, name, world, data, figures)
    shelf.mkdir(parents=True, exist_ok=True)
    write_atomic(str(shelf / f"{name}{CARD}"), (json.dumps(card, indent=1, allow_nan=False) + "\n").encode())
    write_atomic(str(shelf / f"{name}{TENSORS}"), data)  # last: a file on the shelf is a world
    return name


def free_name(shelf: Path, name: str) -> str:
    """``name``, or with the next number behind it."""
    names = [name, *(f"{name}-{i}" for i in range(2, 10_000))]
    return next(n for n in names if not (shelf / f"{n}{TENSORS}").exists())
