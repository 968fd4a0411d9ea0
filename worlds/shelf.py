"""The shelf: which worlds there are, their cards, and their registration in Gymnasium.

A world is a pair of files in ``data/``: ``<name>.safetensors`` and its card ``<name>.json``.
"""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

from envolve.core.files import read_text
from envolve.core.registry import nearest
from envolve.worlds import units
from envolve.worlds.file import WorldError, ZooWorld, read_world

if TYPE_CHECKING:
    from envolve.worlds.env import ZooEnv, ZooVectorEnv

NAMESPACE = "envolve"
DATA = Path(__file__).resolve().parent / "data"
TENSORS, CARD = ".safetensors", ".json"
ZOO_BYTES = 20_000  # of a world's tensors, at most
CARD_KEYS = {
    "name": str, "task": str, "kind": str, "licence": str, "learner": str, "search": str, "generations": int,
    "real_steps": int, "command": str, "seed": int, "version": str, "sha256": str, "random": dict, "unseen": dict,
    "library": str, "about": str,
}  # fmt: skip


def names() -> list[str]:
    """All worlds, by task and number."""
    found = (p.name[: -len(TENSORS)] for p in DATA.glob(f"*{TENSORS}"))
    return sorted(found, key=lambda n: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", n)])


def path_of(name: str) -> Path:
    """The file of a world. name: with or without ``envolve/``. Raises WorldError with the nearest name."""
    short = name.removeprefix(f"{NAMESPACE}/")
    known = names()
    if short not in known:
        near = nearest(short, known, 0.0)
        mean = f", did you mean {near}" if near else ""
        raise WorldError(f"world {name!r:.200}: found none of this name{mean}; envolve worlds list shows all")
    return DATA / f"{short}{TENSORS}"


def open_world(name: str | os.PathLike[str]) -> ZooWorld:
    """A world of the shelf, which is read once, or of any file that ends with .safetensors, which may be written anew.
    Raises WorldError."""
    name = os.fspath(name)
    return read_world(Path(name)) if name.endswith(TENSORS) else _of_the_shelf(name)


@lru_cache(maxsize=64)
def _of_the_shelf(name: str) -> ZooWorld:
    return read_world(path_of(name))


def card(name: str | os.PathLike[str]) -> dict[str, Any]:
    """How a world was made, what it cost, and what agents reach that trained in it. name: of the shelf, or a file that
    has its card beside it. Raises WorldError."""
    name = os.fspath(name)
    path = (Path(name) if name.endswith(TENSORS) else path_of(name)).with_suffix(CARD)
    try:
        content = json.loads(read_text(path))
    except (OSError, ValueError) as e:
        raise WorldError(f"{path}: found {e}, expected the card of a world") from None
    for key, kind in CARD_KEYS.items():
        if not isinstance(content, dict) or not isinstance(content.get(key), kind):
            found = content.get(key) if isinstance(content, dict) else content
            raise WorldError(f"{path}: key {key!r}: found {found!r:.60}, expected a value of type {kind.__name__}")
    return dict(content)


def make(name: str, normalised: bool = False) -> ZooEnv:
    """What ``gymnasium.make`` calls. normalised: see ``make_vec``. Raises WorldError."""
    from envolve.worlds.env import ZooEnv

    return ZooEnv(seen(name, normalised))


def make_vec(name: str, num_envs: int, normalised: bool = False, **options: Any) -> ZooVectorEnv:
    """What ``gymnasium.make_vec`` calls. normalised: observations are in units of their own spread, as
    ``make_task(name, normalised=True)`` has them; options: of ``ZooVectorEnv``. Raises WorldError, ValueError."""
    from envolve.worlds.env import ZooVectorEnv

    return ZooVectorEnv(seen(name, normalised), num_envs, **options)


def seen(name: str | os.PathLike[str], normalised: bool) -> ZooWorld:
    """A world with the observations that agents see. Raises WorldError."""
    world = open_world(name)
    return units.normalised(world) if normalised else world


def register_all() -> None:
    """Registers every world as ``envolve/<name>``."""
    for name in names():
        register(
            f"{NAMESPACE}/{name}",
            entry_point="envolve.worlds.shelf:make",
            vector_entry_point="envolve.worlds.shelf:make_vec",
            kwargs={"name": name},
        )
