"""What candidates read of a task: named tensors of its entities, sensors, commands and terms.

Names and conventions are the library's own: SI units, world coordinates where a name ends with ``_w``, the body's
where it ends with ``_b``, quaternions in its order. ``<entity>_<name>`` is ``scene[entity].data.<name>``.

Axes: R environments.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from torch import Tensor

from envolve.envs.managers.library import Driver, Library
from envolve.envs.physics.task import Quantity

MOST_NUMBERS = 1024  # of one quantity: larger ones (pictures) are left out
W = "world"


class Reader(NamedTuple):
    """One quantity and how it is read."""

    quantity: Quantity
    read: Callable[[], Tensor]  # [R, ...]


def plain(name: str) -> str:
    """A name of the library as a name of the state: letters, digits and underscores."""
    return re.sub(r"\W", "_", name)


def readers(library: Library, driver: Driver) -> Dict[str, Reader]:
    """Quantities of an environment, by name."""
    env, found = driver.env, {}
    for name, entity in driver.entities().items():
        found.update(_entity(library, driver, name, entity))
    for name, sensor in env.scene.sensors.items():
        if getattr(sensor, "data", None) is not None and not library.is_part(name):
            found.update(_sensor(library, driver, name, sensor))
    for name in env.command_manager.active_terms:
        get = partial(env.command_manager.get_command, name)
        found[f"command_{plain(name)}"] = _reader(driver, get, "", f"the task's command {name!r}")
    found["env_origin"] = _reader(driver, lambda: env.scene.env_origins, "m", f"the environment's place, {W}")
    return {name: reader for name, reader in found.items() if math.prod(reader.quantity.shape) <= MOST_NUMBERS}


def _reader(driver: Driver, get: Callable[[], Any], unit: str, meaning: str) -> Reader:
    def read() -> Tensor:
        return driver.read(get())

    return Reader(Quantity(tuple(read().shape[1:]), unit, meaning), read)


def _of_data(owner: Any, attribute: str) -> Any:
    return getattr(owner.data, attribute)


def _entity(library: Library, driver: Driver, name: str, entity: Any) -> Dict[str, Reader]:
    found: Dict[str, Reader] = {}
    joints = ", ".join(getattr(entity, "joint_names", ()))

    def add(attribute: str, unit: str, meaning: str) -> None:
        found[f"{plain(name)}_{attribute}"] = _reader(driver, partial(_of_data, entity, attribute), unit, meaning)

    if not getattr(entity, "is_fixed_base", False):
        for attribute, (unit, meaning) in library.floating.items():
            add(attribute, unit, meaning)
    if joints:
        for attribute, (unit, meaning) in library.joints.items():
            add(attribute, unit, f"{meaning}: {joints}")
    for attribute, (names, unit, meaning) in library.parts.items():
        if getattr(entity, names):
            add(attribute, unit, f"{meaning}: {', '.join(getattr(entity, names))}")
    return found


def _sensor(library: Library, driver: Driver, name: str, sensor: Any) -> Dict[str, Reader]:
    """A sensor's own tensor, or the fields of its record that are known here."""
    own = f"sensor_{plain(name)}"
    if hasattr(sensor.data, "shape"):
        reader = _reader(driver, lambda: sensor.data, "", f"sensor {name!r}")
        return {own: reader} if reader.read().is_floating_point() else {}
    return {
        f"{own}_{attribute}": _reader(driver, partial(_of_data, sensor, attribute), unit, f"{meaning}: sensor {name!r}")
        for attribute, (unit, meaning) in library.sensed.items()
        if getattr(sensor.data, attribute, None) is not None
    }


def layout(quantities: Dict[str, Quantity]) -> Tuple[List[int], int]:
    """Columns of each quantity in one buffer, and their sum."""
    widths = [math.prod(q.shape) for q in quantities.values()]
    return widths, sum(widths)
