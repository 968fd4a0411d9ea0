"""What candidates read of a task of mjlab: named tensors of its entities, sensors, commands and terms.

Names and conventions are mjlab's own: SI units, world coordinates where a name ends with ``_w``, the body's where it
ends with ``_b``, quaternions (w, x, y, z). ``<entity>_<name>`` is ``scene[entity].data.<name>``.

Axes: R environments.
"""

from __future__ import annotations

import math
import re
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch
from torch import Tensor

from envolve.envs.physics.task import Quantity

MOST_NUMBERS = 1024  # of one quantity: larger ones (pictures) are left out
W, B = "world", "body's own frame"
QUATERNION = "quaternion (w, x, y, z), body to world coordinates"
FLOATING = {  # name of EntityData: unit, meaning
    "root_link_pos_w": ("m", f"position of the root, {W}"),
    "root_link_quat_w": ("", f"of the root, {QUATERNION}"),
    "root_link_lin_vel_w": ("m/s", f"of the root, {W}"),
    "root_link_ang_vel_w": ("rad/s", f"of the root, {W}"),
    "root_link_lin_vel_b": ("m/s", f"of the root, {B}"),
    "root_link_ang_vel_b": ("rad/s", f"of the root, {B}"),
    "projected_gravity_b": ("", "direction of gravity in the root's frame: (0, 0, -1) when level"),
    "heading_w": ("rad", "yaw of the root"),
}
JOINTS = {
    "joint_pos": ("rad or m", "positions"),
    "default_joint_pos": ("rad or m", "the pose that mjlab calls default"),
    "joint_vel": ("rad/s or m/s", "velocities"),
    "joint_acc": ("rad/s^2 or m/s^2", "accelerations"),
    "qfrc_actuator": ("N m or N", "effort of the actuators at the joints"),
}
PARTS = {  # one row per body or site
    "body_link_pos_w": ("body_names", "m", f"positions of the bodies, {W}"),
    "body_link_lin_vel_w": ("body_names", "m/s", f"velocities of the bodies, {W}"),
    "site_pos_w": ("site_names", "m", f"positions of the sites, {W}"),
    "site_lin_vel_w": ("site_names", "m/s", f"velocities of the sites, {W}"),
}
CONTACT = {
    "found": ("", "number of contacts found"),
    "force": ("N", "contact force"),
    "current_air_time": ("s", "time since the last contact, 0 in contact"),
    "last_air_time": ("s", "length of the last flight"),
    "current_contact_time": ("s", "time in contact, 0 in the air"),
    "last_contact_time": ("s", "length of the last contact"),
    "heights": ("m", "height above the ground"),
}


class Reader(NamedTuple):
    """One quantity and how it is read."""

    quantity: Quantity
    read: Callable[[], Tensor]  # [R, ...]


def plain(name: str) -> str:
    """A name of mjlab as a name of the state: letters, digits and underscores."""
    return re.sub(r"\W", "_", name)


def readers(env: Any) -> Dict[str, Reader]:
    """Quantities of a ``ManagerBasedRlEnv``, by name."""
    found: Dict[str, Reader] = {}
    for name, entity in env.scene.entities.items():
        if type(entity).__name__ != "TerrainEntity":
            found.update(_entity(name, entity))
    for name, sensor in env.scene.sensors.items():
        found.update(_sensor(name, sensor))
    for name in env.command_manager.active_terms:
        read = _getter(env.command_manager.get_command, name)
        found[f"command_{plain(name)}"] = Reader(_quantity(read, "", f"the task's command {name!r}"), read)

    def origins() -> Tensor:
        given: Tensor = env.scene.env_origins
        return given

    found["env_origin"] = Reader(Quantity((3,), "m", f"the environment's place, {W}"), origins)
    return {name: reader for name, reader in found.items() if math.prod(reader.quantity.shape) <= MOST_NUMBERS}


def _getter(function: Callable[..., Any], *arguments: Any) -> Callable[[], Tensor]:
    def read() -> Tensor:
        out = function(*arguments)
        return out if isinstance(out, Tensor) else torch.as_tensor(out[:])

    return read


def _quantity(read: Callable[[], Tensor], unit: str, meaning: str) -> Quantity:
    return Quantity(tuple(read().shape[1:]), unit, meaning)


def _entity(name: str, entity: Any) -> Dict[str, Reader]:
    found: Dict[str, Reader] = {}
    joints = ", ".join(entity.joint_names)

    def add(attribute: str, unit: str, meaning: str) -> None:
        read = _getter(getattr, entity.data, attribute)
        found[f"{plain(name)}_{attribute}"] = Reader(_quantity(read, unit, meaning), read)

    if not entity.is_fixed_base:
        for attribute, (unit, meaning) in FLOATING.items():
            add(attribute, unit, meaning)
    if joints:
        for attribute, (unit, meaning) in JOINTS.items():
            add(attribute, unit, f"{meaning}: {joints}")
    for attribute, (names, unit, meaning) in PARTS.items():
        if getattr(entity, names):
            add(attribute, unit, f"{meaning}: {', '.join(getattr(entity, names))}")
    return found


def _sensor(name: str, sensor: Any) -> Dict[str, Reader]:
    """A sensor's own tensor, or the fields of its record that are known here."""
    if getattr(sensor, "data", None) is None or _is_part(name):
        return {}
    own = plain(name)
    if hasattr(sensor.data, "shape"):
        read = _getter(lambda: sensor.data)
        return (
            {f"sensor_{own}": Reader(_quantity(read, "", f"sensor {name!r}"), read)}
            if read().is_floating_point()
            else {}
        )
    found = {}
    for attribute, (unit, meaning) in CONTACT.items():
        if getattr(sensor.data, attribute, None) is not None:
            read = _getter(lambda a=attribute: getattr(sensor.data, a))
            found[f"sensor_{own}_{attribute}"] = Reader(_quantity(read, unit, f"{meaning}: sensor {name!r}"), read)
    return found


def _is_part(name: str) -> bool:
    """True for the raw sensors of which mjlab makes a contact sensor."""
    return name.endswith(("_found", "_force", "_torque", "_dist", "_pos", "_normal", "_tangent")) and "/" not in name


def layout(quantities: Dict[str, Quantity]) -> Tuple[List[int], int]:
    """Columns of each quantity in one buffer, and their sum."""
    widths = [math.prod(q.shape) for q in quantities.values()]
    return widths, sum(widths)
