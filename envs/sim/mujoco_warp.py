"""MuJoCo on a GPU: mujoco_warp (https://github.com/google-deepmind/mujoco_warp), float32, substeps in a captured graph.

PyTorch sees the engine's arrays without a copy. What is written is written in place, so that a captured graph stays
valid; a property set for the first time gives its arrays a row per environment, and the graphs are captured anew.

An environment whose numbers are no longer finite, or exceed MuJoCo's limit of 1e10, becomes ``unstable`` and lies in
the model's pose until its state is set, so that it costs the others nothing. So does one with more constraints than
were provided for (``buffer_sizes``: enough for all geometries touching, up to MAX_CONTACTS). Contacts are kept in one
pool for all environments; were that full, every result would be wrong: all are unstable, and SimulatorError follows
within CHECK_EVERY steps, because looking waits for the GPU.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Tuple

import mujoco
import numpy as np
import torch
from torch import Tensor

from envolve.envs.sim.mujoco_batch import Batch
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

try:
    import mujoco_warp as mjw
    import warp as wp
except ImportError as e:
    raise SimulatorError(
        f"engine mujoco_warp needs a missing package ({e}): pip install mujoco-warp=={mujoco.__version__}"
    ) from e

log = logging.getLogger(__name__)
LARGEST = 1e10  # mjMAXVAL: MuJoCo calls larger numbers a divergence
LEAST_FRICTION = 0.02  # coefficient of sliding: below, float32 diverges (at 0.01 within 2 s, at 0.001 at once)
MAX_CONTACTS = 64  # of one environment; work grows with what is provided for
CHECK_EVERY = 64  # steps
SHARED = mjw.OverflowType.BROADPHASE | mjw.OverflowType.NARROWPHASE
HARMLESS = mjw.OverflowType.ITERATIONS | mjw.OverflowType.LS_ITERATIONS  # the solver stopped early, as MuJoCo's does
# Contacts and constraints in a fixed order cost nothing. Fixed sums (ATOMICS) make a GPU 10 to 55 times slower, need
# arrays too large for 16,384 ANYmals, and runs on it still did not repeat to the last bit (docs/results/speed.md, GPU).
DETERMINISM = mjw.DeterminismType.CONTACTS | mjw.DeterminismType.CONSTRAINT
NEED_FORCES = ("cacc", "cfrc_int", "cfrc_ext")
MASS_FIELDS = (  # what the masses are and what MuJoCo derives from them
    "body_mass", "body_inertia", "body_subtreemass", "dof_invweight0", "body_invweight0", "tendon_invweight0",
    "actuator_acc0",
)  # fmt: skip


def buffer_sizes(model: mujoco.MjModel, pairs: np.ndarray) -> Tuple[int, int]:
    """Limits of contacts and constraint rows of one environment; pairs [K, 2]: geometries that may touch."""
    kind = np.sort(model.geom_type[pairs], 1)
    round_ = np.isin(kind, (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_ELLIPSOID)).any(1)
    capsule = (kind == mujoco.mjtGeom.mjGEOM_CAPSULE).any(1)
    contacts = int(np.where(round_, 1, np.where(capsule, 2, 8)).sum())  # boxes touch in up to 8 points
    contacts = max(min(contacts, MAX_CONTACTS), 1)
    rows = max(1, 2 * (int(model.geom_condim.max(initial=1)) - 1))  # of a contact with a pyramidal friction cone
    # limits on either side, friction in the joint, tendons, equalities
    others = 2 * model.njnt + model.nv + 2 * model.ntendon + 6 * model.neq
    # room for every pair, too: each may pass the search for near ones
    return max(contacts, len(pairs)), contacts * rows + others


class MuJoCoWarp(Simulator):
    engine = "mujoco_warp"
    capabilities = frozenset(PROPERTIES) | {"render", "engine_outputs"}

    def __init__(
        self,
        path: Path,
        num_envs: int,
        outputs: Sequence[str],
        threads: int,
        device: torch.device,
        scene: Optional[Scene] = None,
    ) -> None:
        if device.type == "cuda" and not torch.cuda.is_available():
            raise SimulatorError(f"device {device} was asked for, but PyTorch sees no GPU: choose device cpu")
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        wp.config.log_level = wp.LOG_WARNING  # not a line for each of a hundred kernels
        self.model = model = load_model(path, CONTACT_FORCE in outputs, scene)
        self.layout = layout = ModelLayout(model, torch.float32, device)
        self.num_envs, self.device, self.timestep = num_envs, device, float(model.opt.timestep)
        self.free_bodies, self.joints, self.bodies = layout.free_bodies, layout.joints, layout.bodies
        self.actuators, self.effort_limit = layout.actuators, layout.effort_limit
        self._warp_device = wp.get_device(str(device))
        with wp.ScopedDevice(self._warp_device):
            self._m = mjw.put_model(model)
            self._m.opt.warn_overflow, self._m.opt.deterministic = 0, DETERMINISM
            self._m.opt.run_rne_postconstraint = any(name in NEED_FORCES for name in outputs)
            contacts, rows = buffer_sizes(model, self._m.nxn_geom_pair_filtered.numpy())
            self._d = mjw.put_data(model, mujoco.MjData(model), nworld=num_envs, nconmax=contacts, njmax=rows)
        self.qpos, self.qvel, self.ctrl, self._warm_start, self._overflow = (
            self._field(name) for name in ("qpos", "qvel", "ctrl", "qacc_warmstart", "overflow")
        )
        self._cleared = [self.qvel, self.ctrl, self._warm_start, self._field("act"), self._field("time")]
        self._qpos0 = torch.from_numpy(model.qpos0).to(device, torch.float32)
        self._masses: Optional[Batch] = None  # as many models in MuJoCo itself, once masses are set
        self._per_env: Dict[str, Tensor] = {}  # model fields that have a row per environment
        self._graphs: Dict[int, Any] = {}  # by substeps; 0: only compute what follows from the state
        self._camera, self._steps = Camera(), 0
        self.root_state, self.joint_position, self.joint_velocity = layout.state_tensors(self.qpos, self.qvel)
        self.unstable = torch.zeros(num_envs, dtype=torch.bool, device=device)
        log.info("mujoco_warp: loading kernels for %s (compiled on first use, about half a minute)", device)
        with self._on_stream():  # all modules are loaded before a graph is captured
            mjw.step(self._m, self._d)
        self._outputs = {name: self._fresh(name).clone() for name in outputs}
        rest = (x.expand(num_envs, *x.shape) for x in self.rest_state())
        self.set_state(torch.arange(num_envs, device=device), *rest)

    def _field(self, name: str) -> Tensor:
        array = getattr(self._d, name, None)
        if not isinstance(array, wp.array):
            raise SimulatorError(
                f"no output {name!r}; known: {BODY_STATE}, {CONTACT_FORCE}, fields of mujoco_warp.Data"
            )
        return wp.to_torch(array)

    # ------------------------------------------------------------------------------------------------------ stepping

    def _on_stream(self) -> AbstractContextManager:
        """Puts Warp's work into PyTorch's stream."""
        if self.device.type == "cpu":
            return wp.ScopedDevice(self._warp_device)
        return wp.ScopedStream(wp.stream_from_torch(torch.cuda.current_stream(self.device)))

    def _run(self, substeps: int) -> None:
        """Advances; with 0 substeps, computes what follows from the state."""
        if substeps not in self._graphs:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)  # the graph is captured on a stream of its own
            with wp.ScopedDevice(self._warp_device), wp.ScopedCapture() as capture:
                for _ in range(substeps):
                    mjw.step(self._m, self._d)
                if not substeps:
                    mjw.forward(self._m, self._d)
            self._graphs[substeps] = capture.graph
        with self._on_stream():
            wp.capture_launch(self._graphs[substeps])

    def set_effort(self, effort: Tensor) -> None:
        limit = self.effort_limit
        torch.div(effort.to(torch.float32).clamp(-limit, limit), self.layout.gear, out=self.ctrl)

    def step(self, substeps: int) -> None:
        self._run(substeps)
        self._steps += 1
        if self._steps % CHECK_EVERY == 0 or self.device.type == "cpu":
            self._check_pool()
        self.unstable |= self._diverged(self.qpos, self.qvel, self.ctrl) | ((self._overflow & ~int(HARMLESS)) != 0)
        self._overflow.bitwise_and_(int(SHARED))  # that stays until it is looked at
        lost = self.unstable[:, None]
        torch.where(lost, self._qpos0, self.qpos, out=self.qpos)
        self.qvel.masked_fill_(lost, 0)
        self._warm_start.masked_fill_(lost, 0)
        self._refresh()
        for name, shown in self._outputs.items():
            shown.copy_(self._fresh(name))
            shown.masked_fill_(self.unstable.view(-1, *[1] * (shown.dim() - 1)), 0)

    def _check_pool(self) -> None:
        if bool((self._overflow & int(SHARED)).any()):
            raise SimulatorError(
                f"mujoco_warp's pool of {self._d.naconmax} contacts for {self.num_envs} environments is full: what was"
                " computed since is wrong"
            )

    @staticmethod
    def _diverged(*state: Tensor) -> Tensor:
        """Unstable environments, bool [N]: with a number that is too large, or is none, since comparisons with NaN are
        false. The effort is checked because the engine clips it, NaN included."""
        return ~torch.cat(state, 1).abs().lt(LARGEST).all(1)

    def _refresh(self) -> None:
        self.layout.read(self.qpos, self.qvel, self.root_state, self.joint_position, self.joint_velocity)

    def set_state(self, ids: Tensor, root_state: Tensor, joint_position: Tensor, joint_velocity: Tensor) -> None:
        if not len(ids):
            return
        # copies: they may be views of what is cleared next
        pose = [x.to(self.qpos.dtype, copy=True) for x in (root_state, joint_position, joint_velocity)]
        self.qpos[ids] = self._qpos0
        for tensor in self._cleared:
            tensor[ids] = 0
        self.layout.write(self.qpos, self.qvel, ids, *pose)
        self.unstable[ids] = self._diverged(self.qpos[ids], self.qvel[ids])
        self._refresh()
        if self._outputs:
            self._run(0)
        for name, shown in self._outputs.items():  # the others' stay what they were after the step
            shown[ids] = self._fresh(name)[ids]

    def rest_state(self) -> Tuple[Tensor, Tensor, Tensor]:
        return self.layout.rest_state()

    # ------------------------------------------------------------------------------------------- outputs, properties

    def _fresh(self, name: str) -> Tensor:
        if name == BODY_STATE:
            return self.layout.body_state(*(self._field(field) for field in BODY_FIELDS))
        if name == CONTACT_FORCE:
            return self.layout.contact_force(self._field("sensordata"))
        return self._field(name)

    def output(self, name: str) -> Tensor:
        if name not in self._outputs:
            raise SimulatorError(f"output {name!r} was not asked for when the simulator was made")
        return self._outputs[name]

    def set_property(self, name: str, ids: Tensor, value: Tensor) -> None:
        value = value.to(self.device, torch.float32)
        if name == GRAVITY:
            self._rows("gravity", self._m.opt)[ids] = value
        elif name == MASS_SCALE:
            self._set_mass(ids, value.cpu().double().numpy())
        elif name == FRICTION_SCALE:
            model = torch.from_numpy(self.model.geom_friction).to(self.device, torch.float32)
            scaled = model * value[:, None, None]
            scaled[..., 0] = torch.maximum(scaled[..., 0], model[:, 0].clamp(max=LEAST_FRICTION))
            self._rows("geom_friction")[ids] = scaled
        else:
            raise SimulatorError(f"no property {name!r}; known: {', '.join(PROPERTIES)}")

    def _set_mass(self, ids: Tensor, scale: np.ndarray) -> None:
        """MuJoCo itself derives the constants: mujoco_warp's ``set_const_0`` finds others for bodies with slides only
        (3.17.0), and those of every environment anew."""
        rows = ids.cpu().numpy()
        if self._masses is None:
            self._masses = Batch(self.model, self.num_envs, 1)
        for field in ("body_mass", "body_inertia"):
            model = getattr(self.model, field)
            self._masses.expand(field)[rows] = model * scale.reshape((-1,) + (1,) * model.ndim)
        self._masses.set_const(ids=np.sort(rows))
        for field in MASS_FIELDS:
            self._rows(field)[ids] = torch.from_numpy(self._masses.expand(field)[rows]).to(self.device, torch.float32)

    def _rows(self, field: str, owner: Any = None) -> Tensor:
        """A field of the engine's model (or of its options) with a row per environment."""
        if field not in self._per_env:
            owner = self._m if owner is None else owner
            shared = getattr(owner, field)
            rows = np.repeat(shared.numpy()[:1], self.num_envs, 0)
            array = wp.array(rows, dtype=shared.dtype, device=self._warp_device)
            array._is_batched = True  # as mujoco_warp marks them
            setattr(owner, field, array)
            self._graphs.clear()  # they read the old array
            self._per_env[field] = wp.to_torch(array)
        return self._per_env[field]

    def render(self, env: int, width: int, height: int) -> np.ndarray:
        """Raises SimulatorError if no off-screen OpenGL is available."""
        data = mujoco.MjData(self.model)
        data.qpos[:] = self.qpos[env].cpu().numpy()
        return self._camera.picture(self.model, data, width, height)

    def close(self) -> None:
        self._camera.close()
        self._graphs.clear()
