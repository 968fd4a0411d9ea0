"""MuJoCo models for both engines: the layout that ``Simulator`` names, conversions, pictures.

MuJoCo keeps quaternions as (w, x, y, z) and a free body's angular velocity in the body's own frame; both are converted
here (https://mujoco.readthedocs.io/en/stable/overview.html#floating-objects).
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import ClassVar, Dict, NamedTuple, Optional, Sequence, Tuple, Union

import mujoco
import numpy as np
import torch
from torch import Tensor

from envolve.envs.sim.rotations import from_wxyz, rotate, rotate_inverse, to_wxyz
from envolve.envs.sim.simulator import Scene, SimulatorError

ON_JOINT, ON_SITE = int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_SITE)
FREE, HINGE, SLIDE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("FREE", "HINGE", "SLIDE"))
CONTACT_SENSOR = "_contact_"  # + name of the body
BODY_FIELDS = ("xpos", "xquat", "cvel", "subtree_com")  # what ``ModelLayout.body_state`` is computed from


def silence_log() -> None:
    """Silences MuJoCo's line in the terminal and in MUJOCO_LOG.TXT for every divergence; ``unstable`` reports it."""
    if hasattr(mujoco, "MjLogConfig"):  # not in 3.2.3, the last one for Python 3.8, which Isaac Gym is bound to
        logs = mujoco.MjLogConfig.get()
        logs.logto_console = logs.logto_file = False
        logs.set()


def load_model(path: Path, contact_forces: bool, scene: Optional[Scene] = None) -> mujoco.MjModel:
    """Model in ``path``, with a sensor of the net contact force for every body on request. Bodies without a name are
    called body<number>. scene: function that adds more to the model."""
    silence_log()
    spec = mujoco.MjSpec.from_file(str(path))
    if scene is not None:
        scene(spec)
    for number, body in enumerate(spec.bodies):
        body.name = body.name or f"body{number}"
    if contact_forces:
        for body in spec.bodies:
            if body.name == "world":
                continue
            # intprm: what is measured (bit 1: force), how contacts are reduced (3: net force), how many slots
            spec.add_sensor(
                name=CONTACT_SENSOR + body.name,
                type=mujoco.mjtSensor.mjSENS_CONTACT,
                objtype=mujoco.mjtObj.mjOBJ_UNKNOWN,
                reftype=mujoco.mjtObj.mjOBJ_BODY,
                refname=body.name,
                intprm=[2, 3, 1],
            )
    with warnings.catch_warnings():  # of Gymnasium's HalfCheetah, which has it; the mass in bits depends on it
        warnings.filterwarnings("ignore", message="compiler attribute 'settotalmass' is deprecated")
        return spec.compile()


def gears(model: mujoco.MjModel) -> np.ndarray:
    """Effort of every actuator per control, float64 [U]: at a joint the first number of its gear; at a site the first
    three are a force."""
    at_joint, gear = model.actuator_trntype == ON_JOINT, model.actuator_gear
    return np.where(at_joint, gear[:, 0], np.linalg.norm(gear[:, :3], axis=1))


class ModelLayout:
    """Layout of a compiled model. Tensors have the engine's dtype and device."""

    def __init__(self, model: mujoco.MjModel, dtype: torch.dtype, device: torch.device) -> None:
        self.model = model
        self.bodies = tuple(model.body(b).name for b in range(1, model.nbody))
        kind, name = model.jnt_type, [model.joint(j).name for j in range(model.njnt)]
        unsupported = [name[j] for j in range(model.njnt) if kind[j] not in (FREE, HINGE, SLIDE)]
        if unsupported:
            raise SimulatorError(f"joints {', '.join(unsupported)}: only free joints, hinges and slides are supported")
        free = [j for j in range(model.njnt) if kind[j] == FREE]
        single = [j for j in range(model.njnt) if kind[j] != FREE]
        self.free_bodies = tuple(model.body(model.jnt_bodyid[j]).name for j in free)
        self.joints = tuple(name[j] for j in single)
        at, on = model.actuator_trnid[:, 0], model.actuator_trntype
        odd = [model.actuator(u).name for u in range(model.nu) if on[u] not in (ON_JOINT, ON_SITE)]
        if odd:
            raise SimulatorError(f"actuators {', '.join(odd)}: only those of joints and sites are supported")
        self.actuators = tuple(name[at[u]] if on[u] == ON_JOINT else model.actuator(u).name for u in range(model.nu))
        self._free = [(int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])) for j in free]
        self._qpos = torch.from_numpy(model.jnt_qposadr[single]).to(device, torch.int64)
        self._qvel = torch.from_numpy(model.jnt_dofadr[single]).to(device, torch.int64)
        self._side_by_side = not single or bool((np.diff(model.jnt_qposadr[single]) == 1).all())
        self._tree = torch.from_numpy(model.body_rootid[1:]).to(device, torch.int64)
        gear = gears(model)
        self.gear = torch.from_numpy(gear).to(device, dtype)
        limited, ranges = model.actuator_ctrllimited.astype(bool), np.abs(model.actuator_ctrlrange).max(1)
        limit = np.where(limited, ranges * np.abs(gear), np.inf)  # N m or N: control times gear
        self.effort_limit = torch.from_numpy(limit).to(device, dtype)

    def state_tensors(self, qpos: Tensor, qvel: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """root_state, joint_position, joint_velocity for a simulator with qpos [N, nq], qvel [N, nv]. The joints are
        views of those where their columns lie side by side, else copies which ``read`` fills."""
        if self._side_by_side:
            p, v = (int(x[0]) if len(x) else 0 for x in (self._qpos, self._qvel))
            joints = qpos[:, p : p + len(self.joints)], qvel[:, v : v + len(self.joints)]
        else:
            joints = qpos[:, self._qpos], qvel[:, self._qvel]
        return (qpos.new_zeros(len(qpos), len(self.free_bodies), 13), *joints)

    def read(self, qpos: Tensor, qvel: Tensor, root_state: Tensor, position: Tensor, velocity: Tensor) -> None:
        """Updates the tensors of ``state_tensors``."""
        for a, (p, v) in enumerate(self._free):
            root, quat = root_state[:, a], from_wxyz(qpos[:, p + 3 : p + 7])
            root[:, :3] = qpos[:, p : p + 3]
            root[:, 3:7] = quat
            root[:, 7:10] = qvel[:, v : v + 3]
            root[:, 10:] = rotate(quat, qvel[:, v + 3 : v + 6])
        if not self._side_by_side:
            torch.index_select(qpos, 1, self._qpos, out=position)
            torch.index_select(qvel, 1, self._qvel, out=velocity)

    def write(
        self, qpos: Tensor, qvel: Tensor, ids: Tensor, root_state: Tensor, position: Tensor, velocity: Tensor
    ) -> None:
        """Puts rows ids [K] into states [K, A, 13], [K, D], [K, D], of the dtype of qpos."""
        for a, (p, v) in enumerate(self._free):
            root = root_state[:, a]
            qpos[ids, p : p + 3] = root[:, :3]
            qpos[ids, p + 3 : p + 7] = to_wxyz(root[:, 3:7])
            qvel[ids, v : v + 3] = root[:, 7:10]
            qvel[ids, v + 3 : v + 6] = rotate_inverse(root[:, 3:7], root[:, 10:])
        qpos[ids[:, None], self._qpos] = position
        qvel[ids[:, None], self._qvel] = velocity

    def rest_state(self) -> Tuple[Tensor, Tensor, Tensor]:
        """``Simulator.rest_state``, float64 on the layout's device."""
        qpos = torch.from_numpy(self.model.qpos0.copy()).to(self._qpos.device)
        root = qpos.new_zeros(len(self.free_bodies), 13)
        for a, (p, _) in enumerate(self._free):
            root[a, :3], root[a, 3:7] = qpos[p : p + 3], from_wxyz(qpos[p + 3 : p + 7])
        return root, qpos[self._qpos], torch.zeros_like(qpos[self._qpos])

    def body_state(self, xpos: Tensor, xquat: Tensor, cvel: Tensor, subtree_com: Tensor) -> Tensor:
        """Body states [N, B, 13] from MuJoCo's fields ``BODY_FIELDS``."""
        angular, linear = cvel[:, 1:, :3], cvel[:, 1:, 3:]
        # MuJoCo gives the velocity of the body's point at the tree's centre of mass: v = v_com + w x r
        arm = xpos[:, 1:] - subtree_com[:, self._tree]
        linear = linear + torch.cross(angular, arm, dim=-1)
        return torch.cat((xpos[:, 1:], from_wxyz(xquat[:, 1:]), linear, angular), 2)

    def contact_force(self, sensordata: Tensor) -> Tensor:
        """Contact forces [N, B, 3] from the sensors that ``load_model`` adds."""
        first = int(self.model.sensor(CONTACT_SENSOR + self.bodies[0]).adr[0])
        return sensordata[:, first : first + 3 * len(self.bodies)].view(len(sensordata), -1, 3)


class Mark(NamedTuple):
    """Ball drawn into a picture that is not in the model."""

    position: Union[Sequence[float], np.ndarray]  # m
    radius: float  # m
    colour: Tuple[float, float, float, float]  # red, green, blue, opacity


class View(NamedTuple):
    """Camera of a picture, and extra objects in it."""

    lookat: Union[Sequence[float], np.ndarray]  # m
    distance: float  # m, from there
    elevation: float = -20.0  # degrees, negative: from above
    marks: Tuple[Mark, ...] = ()


class Camera:
    """Renderer of a MuJoCo state by off-screen OpenGL, from the side; without a view, following the first body."""

    _broken: ClassVar[str] = ""  # why this process cannot render; a second attempt would abort it

    def __init__(self) -> None:
        self._renderers: Dict[Tuple[int, int], mujoco.Renderer] = {}

    def picture(
        self, model: mujoco.MjModel, data: mujoco.MjData, width: int, height: int, view: Optional[View] = None
    ) -> np.ndarray:
        """Picture, uint8 [height, width, 3]. Raises SimulatorError if no off-screen OpenGL is available."""
        if Camera._broken:
            raise SimulatorError(Camera._broken)
        try:
            if (width, height) not in self._renderers:
                self._renderers[width, height] = mujoco.Renderer(model, height, width)
            renderer = self._renderers[width, height]
        except Exception as e:  # mujoco raises FatalError, AttributeError or OpenGL's own, by platform
            Camera._broken = f"no off-screen OpenGL ({e}); on a machine without a display try MUJOCO_GL=egl"
            raise SimulatorError(Camera._broken) from e
        mujoco.mj_forward(model, data)
        camera = mujoco.MjvCamera()
        if view is None:
            moves = model.nbody < 3 or (model.jnt_type == FREE).any()
            view = View(data.subtree_com[1 if moves else 0], 1.5 * max(model.stat.extent, 1.0))
        camera.lookat[:], camera.distance, camera.elevation, camera.azimuth = (
            view.lookat,
            view.distance,
            view.elevation,
            90,
        )
        renderer.update_scene(data, camera)
        for mark in view.marks:
            shape = renderer.scene.geoms[renderer.scene.ngeom]
            size, turn, colour = np.full(3, mark.radius), np.eye(3).ravel(), np.array(mark.colour, np.float32)
            mujoco.mjv_initGeom(shape, mujoco.mjtGeom.mjGEOM_SPHERE, size, np.array(mark.position), turn, colour)
            renderer.scene.ngeom += 1
        return renderer.render()

    def close(self) -> None:
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()
