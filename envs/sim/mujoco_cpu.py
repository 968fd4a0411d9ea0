"""MuJoCo on CPU threads: ``mujoco.batch.Batch``, bit-identical for any number of threads and environments.

MuJoCo keeps quaternions as (w, x, y, z) and a free body's angular velocity in the body's own frame; both are converted
here. It resets a diverged simulation to the model's pose by itself and only counts that, from zero again after each
such reset. So the counter is cleared before every call, and what it holds afterwards makes the environment
``unstable``.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Sequence, Tuple

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch, SimulationError
from torch import Tensor

from envs.sim.rotations import from_wxyz, rotate, rotate_inverse, to_wxyz
from envs.sim.simulator import (
    BODY_STATE,
    CONTACT_FORCE,
    FRICTION_SCALE,
    GRAVITY,
    MASS_SCALE,
    PROPERTIES,
    Simulator,
    SimulatorError,
)

log = logging.getLogger(__name__)
FREE, HINGE, SLIDE = (int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("FREE", "HINGE", "SLIDE"))
CONTACT_SENSOR = "_contact_"  # + name of the body
DIVERGED = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC", "CTRL")]
FULL = [int(getattr(mujoco.mjtWarning, f"mjWARN_{what}")) for what in ("INERTIA", "CONTACTFULL", "CNSTRFULL")]


class ModelLayout:
    """Where a compiled model keeps what the interface names. The same for MuJoCo on CPU and GPU."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.bodies = tuple(model.body(b).name for b in range(1, model.nbody))
        kind, name = model.jnt_type, [model.joint(j).name for j in range(model.njnt)]
        unsupported = [name[j] for j in range(model.njnt) if kind[j] not in (FREE, HINGE, SLIDE)]
        if unsupported:
            raise SimulatorError(f"joints {', '.join(unsupported)}: only free joints, hinges and slides are supported")
        free = [j for j in range(model.njnt) if kind[j] == FREE]
        single = [j for j in range(model.njnt) if kind[j] != FREE]
        self.free_bodies = tuple(model.body(model.jnt_bodyid[j]).name for j in free)
        self.joints = tuple(name[j] for j in single)
        self.free_qpos = [int(model.jnt_qposadr[j]) for j in free]
        self.free_qvel = [int(model.jnt_dofadr[j]) for j in free]
        self.joint_qpos = model.jnt_qposadr[single]
        self.joint_qvel = model.jnt_dofadr[single]
        self.actuators = tuple(name[model.actuator_trnid[u, 0]] for u in range(model.nu))
        self.gear = model.actuator_gear[:, 0].copy()
        limited, ranges = model.actuator_ctrllimited.astype(bool), np.abs(model.actuator_ctrlrange).max(1)
        self.effort_limit = np.where(limited, ranges * np.abs(self.gear), np.inf)  # N m: control times gear


def load_model(path: Path, contact_forces: bool) -> mujoco.MjModel:
    """The model in ``path``, with a sensor of the net contact force for every body if they are asked for. Bodies that
    have no name there are called body<number>.

    MuJoCo would write a line to the terminal and to MUJOCO_LOG.TXT for every divergence; ``unstable`` says it."""
    logs = mujoco.MjLogConfig.get()
    logs.logto_console = logs.logto_file = False
    logs.set()
    spec = mujoco.MjSpec.from_file(str(path))
    for number, body in enumerate(spec.bodies):
        body.name = body.name or f"body{number}"
    if contact_forces:
        for body in spec.bodies:
            if body.name == "world":
                continue
            # intprm: what is measured (bit 1: force), how contacts are reduced (3: net force), how many slots
            spec.add_sensor(
                name=CONTACT_SENSOR + body.name, type=mujoco.mjtSensor.mjSENS_CONTACT,
                objtype=mujoco.mjtObj.mjOBJ_UNKNOWN, reftype=mujoco.mjtObj.mjOBJ_BODY, refname=body.name,
                intprm=[2, 3, 1],
            )  # fmt: skip
    with warnings.catch_warnings():  # of Gymnasium's HalfCheetah, which has it; the mass in bits depends on it
        warnings.filterwarnings("ignore", message="compiler attribute 'settotalmass' is deprecated")
        return spec.compile()


class MuJoCoCPU(Simulator):
    engine = "mujoco"
    capabilities = frozenset(PROPERTIES) | {"render", "engine_outputs"}

    def __init__(self, path: Path, num_envs: int, outputs: Sequence[str], threads: int, device: torch.device) -> None:
        if device.type != "cpu":
            raise SimulatorError(f"engine mujoco runs on the CPU, not on {device}: choose engine mujoco_warp")
        self.model = load_model(path, CONTACT_FORCE in outputs)
        self.layout = layout = ModelLayout(self.model)
        self.num_envs, self.device, self.timestep = num_envs, device, float(self.model.opt.timestep)
        self.free_bodies, self.joints, self.bodies = layout.free_bodies, layout.joints, layout.bodies
        self.actuators, self.effort_limit = layout.actuators, torch.from_numpy(layout.effort_limit)
        self.batch = batch = Batch(self.model, num_envs, threads)
        self.qpos, self.qvel = torch.from_numpy(batch.bind("qpos")), torch.from_numpy(batch.bind("qvel"))
        self.ctrl = torch.from_numpy(batch.bind("ctrl"))
        self._gear = torch.from_numpy(layout.gear)
        self._state = torch.from_numpy(batch.state)
        self._rest_state = self._state[0].clone()
        self._outputs = {name: self._bind(name) for name in outputs}
        self.root_state = torch.zeros(num_envs, len(self.free_bodies), 13, dtype=torch.float64)
        self.joint_position, self._scattered_qpos = self._columns(self.qpos, layout.joint_qpos)
        self.joint_velocity, self._scattered_qvel = self._columns(self.qvel, layout.joint_qvel)
        self.unstable = torch.zeros(num_envs, dtype=torch.bool)
        self._full = False  # somebody was told that MuJoCo ran out of room
        self._renderers: Dict[Tuple[int, int], mujoco.Renderer] = {}
        batch.forward()
        self._refresh()

    def _columns(self, source: Tensor, index: np.ndarray) -> Tuple[Tensor, Any]:
        """A view where the columns lie side by side, else a copy that ``_refresh`` fills."""
        if len(index) and (np.diff(index) == 1).all():
            return source[:, int(index[0]) : int(index[-1]) + 1], None
        return torch.zeros(self.num_envs, len(index), dtype=source.dtype), torch.from_numpy(np.asarray(index)).long()

    def _bind(self, name: str) -> Any:
        if name == BODY_STATE:
            return [self._output(field) for field in ("xpos", "xquat", "cvel", "subtree_com")]
        if name == CONTACT_FORCE:
            return self._output("sensordata")
        return self._output(name)

    def _output(self, field: str) -> Tensor:
        array = self.batch.bind(field)
        array.flags.writeable = True  # torch warns about arrays that are not; nobody here writes to them
        tensor = torch.from_numpy(array)
        array.flags.writeable = False
        return tensor

    # ------------------------------------------------------------------------------------------------------ stepping

    def set_effort(self, effort: Tensor) -> None:
        limit = self.effort_limit
        torch.div(effort.to(torch.float64).clamp(-limit, limit), self._gear, out=self.ctrl)

    def step(self, substeps: int) -> None:
        self._run(lambda: self.batch.step(nstep=substeps))
        self._refresh()

    def _run(self, call: Callable[[], None]) -> None:
        """One call of the engine; environments that diverge in it become unstable."""
        self.batch.warning[:, DIVERGED, 1] = 0
        try:
            call()
        except SimulationError as e:  # the environments it names kept their state, the others are done
            log.warning("%s", e)
            self.unstable[torch.from_numpy(np.asarray(e.ids))] = True
        self.unstable |= torch.from_numpy(self.batch.warning[:, DIVERGED, 1].any(1))
        if not self._full and self.batch.warning[:, FULL, 1].any():
            self._full = True
            kinds = [mujoco.mju_warningText(k, 0) for k in FULL if self.batch.warning[:, k, 1].any()]
            log.warning("MuJoCo, of one or more environments (said once): %s", "; ".join(kinds))

    def _refresh(self) -> None:
        for a, (p, v) in enumerate(zip(self.layout.free_qpos, self.layout.free_qvel)):
            root, quat = self.root_state[:, a], from_wxyz(self.qpos[:, p + 3 : p + 7])
            root[:, :3] = self.qpos[:, p : p + 3]
            root[:, 3:7] = quat
            root[:, 7:10] = self.qvel[:, v : v + 3]
            root[:, 10:] = rotate(quat, self.qvel[:, v + 3 : v + 6])
        if self._scattered_qpos is not None:
            torch.index_select(self.qpos, 1, self._scattered_qpos, out=self.joint_position)
            torch.index_select(self.qvel, 1, self._scattered_qvel, out=self.joint_velocity)

    def set_state(self, ids: Tensor, root_state: Tensor, joint_position: Tensor, joint_velocity: Tensor) -> None:
        if not len(ids):
            return
        rows = self._rest_state.repeat(len(ids), 1)  # time, warm start and controls begin anew
        self._state[ids] = rows
        for a, (p, v) in enumerate(zip(self.layout.free_qpos, self.layout.free_qvel)):
            root = root_state[:, a].to(torch.float64)
            self.qpos[ids, p : p + 3] = root[:, :3]
            self.qpos[ids, p + 3 : p + 7] = to_wxyz(root[:, 3:7])
            self.qvel[ids, v : v + 3] = root[:, 7:10]
            self.qvel[ids, v + 3 : v + 6] = rotate_inverse(root[:, 3:7], root[:, 10:])
        columns = torch.from_numpy(self.layout.joint_qpos).long(), torch.from_numpy(self.layout.joint_qvel).long()
        self.qpos[ids[:, None], columns[0]] = joint_position.to(torch.float64)
        self.qvel[ids[:, None], columns[1]] = joint_velocity.to(torch.float64)
        self.unstable[ids] = False
        self._run(lambda: self.batch.forward(ids=np.sort(ids.numpy())))
        self._refresh()

    def rest_state(self) -> Tuple[Tensor, Tensor, Tensor]:
        qpos = torch.from_numpy(self.model.qpos0.copy())
        root = torch.zeros(len(self.free_bodies), 13, dtype=torch.float64)
        for a, p in enumerate(self.layout.free_qpos):
            root[a, :3], root[a, 3:7] = qpos[p : p + 3], from_wxyz(qpos[p + 3 : p + 7])
        joints = qpos[torch.from_numpy(self.layout.joint_qpos).long()]
        return root, joints, torch.zeros_like(joints)

    # ------------------------------------------------------------------------------------------- outputs, properties

    def output(self, name: str) -> Tensor:
        if name not in self._outputs:
            raise SimulatorError(f"output {name!r} was not asked for when the simulator was made")
        bound = self._outputs[name]
        if name == BODY_STATE:
            position, quat, spatial, com = bound
            angular, linear = spatial[:, 1:, :3], spatial[:, 1:, 3:]
            # MuJoCo gives the velocity of the body's point at the tree's centre of mass: v = v_com + w x r
            root = torch.from_numpy(self.model.body_rootid[1:].astype(np.int64))
            arm = position[:, 1:] - com[:, root]
            linear = linear + torch.cross(angular, arm, dim=-1)
            return torch.cat((position[:, 1:], from_wxyz(quat[:, 1:]), linear, angular), 2)
        if name == CONTACT_FORCE:
            first = int(self.model.sensor(CONTACT_SENSOR + self.bodies[0]).adr[0])
            return bound[:, first : first + 3 * len(self.bodies)].view(self.num_envs, -1, 3)
        return bound

    def set_property(self, name: str, ids: Tensor, value: Tensor) -> None:
        rows, values = ids.numpy(), value.to(torch.float64).numpy()
        if name == GRAVITY:
            self.batch.expand("opt.gravity")[rows] = values
        elif name == MASS_SCALE:
            for field in ("body_mass", "body_inertia"):
                model = getattr(self.model, field)
                self.batch.expand(field)[rows] = model * values.reshape((-1,) + (1,) * model.ndim)
        elif name == FRICTION_SCALE:
            self.batch.expand("geom_friction")[rows] = self.model.geom_friction * values[:, None, None]
        else:
            raise SimulatorError(f"no property {name!r}; known: {', '.join(PROPERTIES)}")
        self.batch.set_const(ids=np.sort(rows))

    def render(self, env: int, width: int, height: int) -> np.ndarray:
        """Raises SimulatorError where no off-screen OpenGL is to be had."""
        try:
            if (width, height) not in self._renderers:
                self._renderers[width, height] = mujoco.Renderer(self.model, height, width)
            renderer = self._renderers[width, height]
        except Exception as e:  # mujoco raises FatalError, AttributeError or OpenGL's own, by platform
            raise SimulatorError(f"no off-screen OpenGL ({e}); on a machine without a display try MUJOCO_GL=egl") from e
        model, data = self.batch.get_model(env), self.batch.get_data(env)
        mujoco.mj_forward(model, data)
        camera = mujoco.MjvCamera()
        camera.lookat[:] = data.subtree_com[1] if self.free_bodies or model.nbody < 3 else data.subtree_com[0]
        camera.distance, camera.elevation, camera.azimuth = 1.5 * max(model.stat.extent, 1.0), -20, 90
        renderer.update_scene(data, camera)
        return renderer.render()

    def close(self) -> None:
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()
