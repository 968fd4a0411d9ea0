"""An MJCF model as Isaac Gym takes it: one asset per tree of bodies, the floor apart, and only what its importer needs.

MuJoCo compiles the model, so that names, masses, limits and poses are those of the other engines. Isaac Gym's importer
reads a single tree. A tree that does not float gets a mount which the adapter fixes, and its joints stay as they are.
Geometries that touch nothing in MuJoCo are left out. Not taken over: geometries of the world other than horizontal
planes, tendons, contact parameters; ``unsupported`` names them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Tuple

import mujoco

from envolve.envs.sim.mujoco_model import silence_log

KEPT = ("compiler", "option", "default")  # top-level sections an asset has besides its bodies
UNUSED = ("light", "camera", "site")
POSE = ("pos", "quat", "euler", "axisangle", "xyaxes", "zaxis")
MOUNT = "_mount"


class Part(NamedTuple):
    """Tree of bodies: one actor of every environment."""

    name: str  # of its root
    xml: str
    free: bool  # floats
    bodies: Tuple[int, ...]  # in the compiled model
    joints: Tuple[str, ...]  # hinges and slides
    touches_itself: bool


class Assets(NamedTuple):
    model: mujoco.MjModel
    parts: List[Part]
    floor: Optional[Tuple[float, float]]  # height m, coefficient of friction
    unsupported: List[str]


def _bodies(element: ET.Element) -> Iterator[ET.Element]:
    """Bodies depth first, in MuJoCo's order."""
    for child in element:
        if child.tag == "body":
            yield child
            yield from _bodies(child)


def load_assets(path: Path) -> Assets:
    tree = ET.parse(str(path)).getroot()
    world = tree.find("worldbody")
    assert world is not None, f"{path}: no worldbody"
    bodies = [world, *_bodies(world)]
    for number, body in enumerate(bodies[1:], 1):  # as in mujoco_model.load_model
        body.set("name", body.get("name") or f"body{number}")
    joints = [joint for body in bodies[1:] for joint in body if joint.tag in ("joint", "freejoint")]
    for number, joint in enumerate(joints):
        joint.set("name", joint.get("name") or f"joint{number}")
    silence_log()
    model = mujoco.MjModel.from_xml_string(ET.tostring(tree, encoding="unicode"))

    floor, unsupported = None, [f"tendon {model.tendon(t).name}" for t in range(model.ntendon)]
    for number, body in enumerate(bodies):
        for g, element in zip(range(*_geoms(model, number)), body.findall("geom")):
            touches = model.geom_contype[g] or model.geom_conaffinity[g]
            if number and not touches:
                body.remove(element)
            if not number and touches:
                if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_PLANE and abs(model.geom_quat[g][0]) > 0.999:
                    floor = float(model.geom_pos[g][2]), float(model.geom_friction[g][0])
                else:
                    unsupported.append(f"geometry {element.get('name') or g} of the world")
        if number:
            _set_inertia(model, number, body)
    sections = [section for section in tree if section.tag in KEPT]
    parts = [_part(model, b, bodies, sections) for b in range(1, model.nbody) if model.body_parentid[b] == 0]
    return Assets(model, parts, floor, unsupported)


def _geoms(model: mujoco.MjModel, body: int) -> Tuple[int, int]:
    first = int(model.body_geomadr[body])
    return (0, 0) if first < 0 else (first, first + int(model.body_geomnum[body]))


def _set_inertia(model: mujoco.MjModel, number: int, body: ET.Element) -> None:
    """Sets masses and inertias as compiled: from the geometries, scaled to a total, ..."""
    for old in body.findall("inertial"):
        body.remove(old)
    body.insert(
        0,
        ET.Element(
            "inertial",
            {
                "pos": _text(model.body_ipos[number]),
                "quat": _text(model.body_iquat[number]),
                "mass": _text([model.body_mass[number]]),
                "diaginertia": _text(model.body_inertia[number]),
            },
        ),
    )


def _text(numbers: object) -> str:
    return " ".join(f"{x:.9g}" for x in numbers)  # type: ignore[attr-defined]


def _part(model: mujoco.MjModel, root: int, bodies: List[ET.Element], sections: List[ET.Element]) -> Part:
    members = tuple(b for b in range(1, model.nbody) if model.body_rootid[b] == root)
    kinds = {j: int(model.jnt_type[j]) for j in range(model.njnt) if model.jnt_bodyid[j] in members}
    free = int(mujoco.mjtJoint.mjJNT_FREE) in kinds.values()
    element = bodies[root]
    for body in [element, *_bodies(element)]:
        for child in list(body):
            if child.tag in UNUSED:
                body.remove(child)
            child.attrib.pop("material", None)
    asset = ET.Element("mujoco", {"model": element.get("name", "")})
    asset.extend([_without_looks(section) for section in sections])
    world = ET.SubElement(asset, "worldbody")
    if free:
        for attribute in POSE:  # the actor is put there
            element.attrib.pop(attribute, None)
    else:
        world = ET.SubElement(world, "body", {"name": element.get("name", "") + MOUNT})
        ET.SubElement(world, "inertial", {"pos": "0 0 0", "mass": "1", "diaginertia": "1 1 1"})
    world.append(element)
    names = tuple(model.joint(j).name for j, kind in kinds.items() if kind != int(mujoco.mjtJoint.mjJNT_FREE))
    text = ET.tostring(asset, encoding="unicode")
    return Part(element.get("name", ""), text, free, members, names, _touches_itself(model, members))


def _touches_itself(model: mujoco.MjModel, members: Tuple[int, ...]) -> bool:
    """True if geometries of two of its bodies may touch (a body and its parent never do)."""
    geoms = [g for g in range(model.ngeom) if model.geom_bodyid[g] in members]
    for g, h in combinations(geoms, 2):
        a, b = model.geom_bodyid[g], model.geom_bodyid[h]
        may = (model.geom_contype[g] & model.geom_conaffinity[h]) | (model.geom_contype[h] & model.geom_conaffinity[g])
        if may and a != b and model.body_parentid[a] != b and model.body_parentid[b] != a:
            return True
    return False


def _without_looks(section: ET.Element) -> ET.Element:
    for element in section.iter():
        element.attrib.pop("material", None)
    if section.tag == "compiler":
        section.attrib.pop("settotalmass", None)  # the masses are given
        section.set("inertiafromgeom", "auto")
    return section
