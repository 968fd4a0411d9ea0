"""MuJoCo on CPU threads: ``mujoco.batch.Batch``, bit-identical for any number of threads and environments.

MuJoCo resets a diverged simulation to the model's pose by itself and only counts that, from zero again after each such
reset. So the counter is cleared before every call, and what it holds afterwards makes the environment ``unstable``.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Tuple

import mujoco
import numpy as np
import torch
from torch import Tensor

from envolve.envs.sim.mujoco_batch import Batch, SimulationError
from envolve.envs.sim.mujoco_clock import stop_clock
from envolve.envs.sim.mujoco_model import BODY_FIELDS, Camera, ModelLayout, load_model
from envolve.envs.sim.simulator import (
    BODY_STATE,
    CONTACT_FORCE,
    FRICTION_SCALE,
    GRAVITY,
    MASS_SCALE,
    PROPERTIES,
    Scene,
    Simulator,
    SimulatorError,
)

log = logging.getLogger(__name__)
DIVERGED = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC", "CTRL")]
FULL = [int(getattr(mujoco.mjtWarning, f"mjWARN_{what}")) for what in ("INERTIA", "CONTACTFULL", "CNSTRFULL")]


class MuJoCoCPU(Simulator):
    engine = "mujoco"
    capabilities = frozenset(PROPERTIES) | {"render", "engine_outputs"}
    storable = True

    def __init__(
        self,
        path: Path,
        num_envs: int,
        outputs: Sequence[str],
        threads: int,
        device: torch.device,
        scene: Optional[Scene] = None,
    ) -> None:
        if device.type != "cpu":
            raise SimulatorError(f"engine mujoco runs on the CPU, not on {device}: choose engine mujoco_warp")
        stop_clock()
        self.model = load_model(path, CONTACT_FORCE in outputs, scene)
        self.layout = layout = ModelLayout(self.model, torch.float64, device)
        self.num_envs, self.device, self.timestep = num_envs, device, float(self.model.opt.timestep)
        self.free_bodies, self.joints, self.bodies = layout.free_bodies, layout.joints, layout.bodies
        self.actuators, self.effort_limit = layout.actuators, layout.effort_limit
        self.batch = batch = Batch(self.model, num_envs, threads)
        self.qpos, self.qvel = torch.from_numpy(batch.bind("qpos")), torch.from_numpy(batch.bind("qvel"))
        self.ctrl = torch.from_numpy(batch.bind("ctrl"))
        self._state = torch.from_numpy(batch.state)
        self._rest_state = self._state[0].clone()
        self._outputs = {name: self._bind(name) for name in outputs}
        self.root_state, self.joint_position, self.joint_velocity = layout.state_tensors(self.qpos, self.qvel)
        self.unstable = torch.zeros(num_envs, dtype=torch.bool)
        self._full = False  # MuJoCo's lack of memory was logged
        self._camera = Camera()
        batch.forward()
        self._refresh()

    def _bind(self, name: str) -> Any:
        if name == BODY_STATE:
            return [self._output(field) for field in BODY_FIELDS]
        if name == CONTACT_FORCE:
            return self._output("sensordata")
        return self._output(name)

    def _output(self, field: str) -> Tensor:
        array = self.batch.bind(field)
        array.flags.writeable = True  # torch warns about read-only arrays; they are never written here
        tensor = torch.from_numpy(array)
        array.flags.writeable = False
        return tensor

    # ------------------------------------------------------------------------------------------------------ stepping

    def set_effort(self, effort: Tensor) -> None:
        limit = self.effort_limit
        torch.div(effort.to(torch.float64).clamp(-limit, limit), self.layout.gear, out=self.ctrl)

    def step(self, substeps: int) -> None:
        ids = None if self.awake is None else self.awake.numpy()
        self._run(lambda: self.batch.step(ids=ids, nstep=substeps))
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
            log.warning("MuJoCo warning in one or more environments (logged once): %s", "; ".join(kinds))

    def _refresh(self) -> None:
        self.layout.read(self.qpos, self.qvel, self.root_state, self.joint_position, self.joint_velocity)

    def set_state(self, ids: Tensor, root_state: Tensor, joint_position: Tensor, joint_velocity: Tensor) -> None:
        if not len(ids):
            return
        # copies: they may be views of what is cleared next
        pose = [x.to(self.qpos.dtype, copy=True) for x in (root_state, joint_position, joint_velocity)]
        self._state[ids] = self._rest_state.repeat(len(ids), 1)  # time, warm start and controls begin anew
        self.layout.write(self.qpos, self.qvel, ids, *pose)
        self.unstable[ids] = False
        self._run(lambda: self.batch.forward(ids=np.sort(ids.numpy())))
        self._refresh()

    def snapshot(self) -> Tensor:
        return torch.cat((self._state, self.unstable[:, None].to(self._state.dtype)), 1)

    def restore(self, snapshot: Tensor) -> None:
        self._state.copy_(snapshot[:, :-1])
        self.unstable.copy_(snapshot[:, -1] > 0)
        self._refresh()

    def rest_state(self) -> Tuple[Tensor, Tensor, Tensor]:
        return self.layout.rest_state()

    # ------------------------------------------------------------------------------------------- outputs, properties

    def output(self, name: str) -> Tensor:
        if name not in self._outputs:
            raise SimulatorError(f"output {name!r} was not asked for when the simulator was made")
        bound = self._outputs[name]
        if name == BODY_STATE:
            return self.layout.body_state(*bound)
        if name == CONTACT_FORCE:
            return self.layout.contact_force(bound)
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
        """Raises SimulatorError if no off-screen OpenGL is available."""
        return self._camera.picture(self.batch.get_model(env), self.batch.get_data(env), width, height)

    def close(self) -> None:
        self._camera.close()
