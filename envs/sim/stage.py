"""Scenery for films: a model with sky, a floor of squares of one metre, light with shadows, and a camera that follows.

The scenery is a twin of the model that a simulator steps: the same bodies and joints, so that it takes the same
coordinates, and more that can only be seen. What is simulated never has it. Python 3.8.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import mujoco
import numpy as np

from envolve.envs.sim.mujoco_model import Camera, View, load_model
from envolve.envs.sim.simulator import Scene

SKY, HORIZON = (0.55, 0.70, 0.88), (0.93, 0.96, 1.0)
LIGHT, DARK = (0.84, 0.86, 0.88), (0.68, 0.72, 0.77)  # squares of the floor
FLOOR = "envolve_floor"
FAR = 60.0  # m, half the floor's width
FOLLOW = 0.12  # share of the way to the robot that the camera goes from one picture to the next
ROOM = 3.4  # distance of the camera, in radii of what moves
NEAREST = 1.2  # m
ELEVATION = -16.0  # degrees


def dress(spec: Any, below: float, square: float = 1.0) -> None:
    """Adds sky, floor and light to an MjSpec. below: height of a floor where the model has none, m; square: side of the
    floor's squares, m."""
    for texture in list(spec.textures):
        if texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX:
            spec.delete(texture) if hasattr(spec, "delete") else texture.delete()
    spec.add_texture(
        name="envolve_sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=SKY,
        rgb2=HORIZON,
        width=256,
        height=256,
    )
    spec.add_texture(
        name=FLOOR,
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=LIGHT,
        rgb2=DARK,
        width=256,
        height=256,
    )
    material = spec.add_material(name=FLOOR, texuniform=True, texrepeat=[0.5 / square] * 2, specular=0.1)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = FLOOR
    planes = [g for g in spec.geoms if g.type == mujoco.mjtGeom.mjGEOM_PLANE]
    for plane in planes:
        plane.material, plane.rgba = FLOOR, [1, 1, 1, 1]
    if not planes:
        spec.worldbody.add_geom(
            name=FLOOR,
            type=mujoco.mjtGeom.mjGEOM_PLANE,
            size=[FAR, FAR, 1],
            pos=[0, 0, below],
            material=FLOOR,
            contype=0,
            conaffinity=0,
        )
    for light in list(spec.lights):
        light.active = False  # two suns make a floor white
    spec.worldbody.add_light(
        pos=[-2, -4, 8],
        dir=[0.25, 0.45, -1],
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        castshadow=True,
        diffuse=[0.5, 0.5, 0.5],
        specular=[0.15, 0.15, 0.15],
    )
    head = spec.visual.headlight
    head.ambient, head.diffuse, head.specular = [0.42] * 3, [0.28] * 3, [0.05] * 3
    spec.visual.quality.shadowsize = 2048
    spec.visual.map.shadowclip = 2.0


def lowest(model: Any, rest: Any) -> float:
    """Height of the lowest point of what moves, m, at most 0; there a floor may be."""
    low = rest.geom_xpos[:, 2] - model.geom_rbound
    solid = (model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE) & (model.geom_bodyid > 0)
    return min(0.0, float(low[solid].min()) if solid.any() else 0.0)


def staged(path: Path, scene: Optional[Scene], below: float, square: float = 1.0) -> Any:
    """The model in ``path`` with its scene, on the stage."""

    def dressed(spec: Any) -> None:
        if scene is not None:
            scene(spec)
        dress(spec, below, square)

    return load_model(path, False, dressed)


class Stage:
    """Pictures of a state on the stage. Raises SimulatorError from ``picture`` where there is no off-screen OpenGL."""

    def __init__(self, path: Path, scene: Optional[Scene] = None) -> None:
        plain = load_model(path, False, scene)
        rest = mujoco.MjData(plain)
        mujoco.mj_forward(plain, rest)
        moving = plain.geom_bodyid > 0
        centre = rest.subtree_com[0] if not moving.any() else rest.geom_xpos[moving].mean(0)
        away = np.linalg.norm(rest.geom_xpos[moving] - centre, axis=1) + plain.geom_rbound[moving]
        self.radius = max(float(away.max()) if len(away) else 1.0, NEAREST / ROOM)
        self.model = staged(path, scene, lowest(plain, rest))
        if (self.model.nq, self.model.nv) != (plain.nq, plain.nv):
            raise ValueError(f"{path}: the stage has {self.model.nq} coordinates, the model {plain.nq}")
        self.data = mujoco.MjData(self.model)
        self.camera = Camera()
        self.looks: Optional[np.ndarray] = None  # where, m

    def picture(self, qpos: np.ndarray, width: int, height: int) -> np.ndarray:
        """qpos: coordinates of the state [nq] -> uint8 [height, width, 3]. The camera follows what moves, and goes
        there at once in the first picture and where an episode begins."""
        self.data.qpos[:] = qpos
        mujoco.mj_forward(self.model, self.data)
        moving = self.model.geom_bodyid > 0
        goal = self.data.geom_xpos[moving].mean(0) if moving.any() else self.data.subtree_com[0].copy()
        if self.looks is None or np.linalg.norm(goal - self.looks) > 2 * self.radius:
            self.looks = goal
        self.looks = self.looks + FOLLOW * (goal - self.looks)
        return self.camera.picture(
            self.model, self.data, width, height, View(self.looks, ROOM * self.radius, ELEVATION)
        )

    def close(self) -> None:
        self.camera.close()
