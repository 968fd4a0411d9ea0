"""NVIDIA Isaac Gym Preview 4 (https://developer.nvidia.com/isaac-gym): PhysX on a GPU or on CPU threads, float32.

Where it differs from the other engines: one simulator per process and for all its life; properties are set actor by
actor and are slow; gravity is one for all; it computes nothing from a state before the next step, so that ``set_state``
has MuJoCo find where the bodies are, and contact forces are zero until that step. Its quaternions and frames are ours.
Positions are relative to an environment's own origin, and actors of different environments never touch.

Setters of the tensor API take effect once per simulated step, and the last call wins
(https://github.com/isaac-sim/IsaacGymEnvs/issues/181). So ``set_state`` only writes into the buffers, and ``step``
hands them over, one call each. What was run and what was not: docs/isaacgym.md.
"""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, List, Sequence, Tuple

import mujoco
import torch
from torch import Tensor

from envolve.envs.sim.isaac.actors import Actors
from envolve.envs.sim.isaac.assets import Assets, load_assets
from envolve.envs.sim.isaac.efforts import Efforts
from envolve.envs.sim.mujoco_model import BODY_FIELDS, ModelLayout
from envolve.envs.sim.simulator import BODY_STATE, CONTACT_FORCE, FRICTION_SCALE, MASS_SCALE, Simulator, SimulatorError

if TYPE_CHECKING:
    from isaacgym import gymapi

log = logging.getLogger(__name__)
LARGEST = 1e10  # as MuJoCo's: beyond, a number counts as diverged
_in_use = False

FIRST = """PyTorch was imported before isaacgym, which refuses that. Start PROGRAM so:
  python -c "import isaacgym, runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')" PROGRAM ...
"""


def check_import() -> None:
    """Imports isaacgym. Raises SimulatorError with advice if that fails."""
    if "isaacgym" in sys.modules:
        return
    if find_spec("isaacgym") is None:
        raise SimulatorError(f"isaacgym is not installed in {sys.executable}: see docs/isaacgym.md")
    raise SimulatorError(FIRST)  # torch is: this module imports it


class IsaacGym(Simulator):
    engine = "isaacgym"
    capabilities = frozenset((MASS_SCALE, FRICTION_SCALE))

    def __init__(self, path: Path, num_envs: int, outputs: Sequence[str], threads: int, device: torch.device) -> None:
        global _in_use
        check_import()
        from isaacgym import gymapi

        unknown = sorted({*outputs} - {BODY_STATE, CONTACT_FORCE})
        if unknown:
            raise SimulatorError(f"isaacgym has no output {', '.join(unknown)}; known: {BODY_STATE}, {CONTACT_FORCE}")
        if _in_use:
            raise SimulatorError("isaacgym allows one simulator per process: put all environments into one")
        self.assets: Assets = load_assets(path)
        for left_out in self.assets.unsupported:
            log.warning("%s: isaacgym ignores %s", path.name, left_out)
        self.layout = layout = ModelLayout(self.assets.model, torch.float32, device)
        self._cpu_layout = ModelLayout(self.assets.model, torch.float64, torch.device("cpu"))
        self._data = mujoco.MjData(self.assets.model)
        self.num_envs, self.device, self.timestep = num_envs, device, float(self.assets.model.opt.timestep)
        self.free_bodies, self.joints, self.bodies = layout.free_bodies, layout.joints, layout.bodies
        self.actuators, self.effort_limit = layout.actuators, layout.effort_limit
        self._outputs = tuple(outputs)
        _in_use = True
        self.gym: gymapi.Gym = gymapi.acquire_gym()
        self.sim: gymapi.Sim = self._create_sim(threads)
        self._actors = Actors(self.gym, self.sim, self.assets, self.rest_state()[0], num_envs)
        joints, bodies = self._actors.joints, self._actors.bodies
        missing = [name for name in (*self.joints, *self.bodies) if name not in (*joints, *bodies)]
        if missing:
            there = ", ".join((*joints, *bodies))
            raise SimulatorError(f"isaacgym's importer lost {', '.join(missing)} of {path.name}; it has {there}")
        self.gym.prepare_sim(self.sim)
        self._acquire(joints, bodies)

    # ------------------------------------------------------------------------------------------------------ creation

    def _create_sim(self, threads: int) -> gymapi.Sim:
        from isaacgym import gymapi

        gpu, params = self.device.type == "cuda", gymapi.SimParams()
        params.dt, params.substeps, params.up_axis = self.timestep, 1, gymapi.UP_AXIS_Z
        params.gravity = gymapi.Vec3(*(float(g) for g in self.assets.model.opt.gravity))
        params.use_gpu_pipeline = params.physx.use_gpu = gpu
        # PhysX as IsaacGymEnvs has it for its Ant, Humanoid and Anymal (cfg/task/*.yaml there)
        params.physx.num_threads, params.physx.solver_type = threads, 1
        params.physx.num_position_iterations, params.physx.num_velocity_iterations = 4, 1
        params.physx.contact_offset, params.physx.rest_offset = 0.02, 0.0
        params.physx.bounce_threshold_velocity, params.physx.max_depenetration_velocity = 0.2, 10.0
        params.physx.default_buffer_size_multiplier = 5.0
        params.physx.contact_collection = gymapi.CC_LAST_SUBSTEP
        index = self.device.index or 0
        sim = self.gym.create_sim(index, -1, gymapi.SIM_PHYSX, params)  # -1: no graphics
        if sim is None:
            raise SimulatorError(f"isaacgym could not create a simulator on {self.device}; its output says why")
        if self.assets.floor is not None:
            plane = gymapi.PlaneParams()
            plane.normal, plane.distance = gymapi.Vec3(0.0, 0.0, 1.0), -self.assets.floor[0]
            plane.static_friction = plane.dynamic_friction = self.assets.floor[1]
            plane.restitution = 0.0
            self.gym.add_ground(sim, plane)
        return sim

    def _acquire(self, joints: List[str], bodies: List[str]) -> None:
        """Engine tensors, and their columns."""
        from isaacgym import gymtorch

        gym, sim, n, parts = self.gym, self.sim, self.num_envs, self.assets.parts
        self._roots = gymtorch.wrap_tensor(gym.acquire_actor_root_state_tensor(sim)).view(n, len(parts), 13)
        self._dofs = torch.zeros(n, 0, 2, device=self.device)
        if joints:
            self._dofs = gymtorch.wrap_tensor(gym.acquire_dof_state_tensor(sim)).view(n, len(joints), 2)
        if BODY_STATE in self._outputs:
            self._body_state = gymtorch.wrap_tensor(gym.acquire_rigid_body_state_tensor(sim)).view(n, len(bodies), 13)
        if CONTACT_FORCE in self._outputs:
            force = gymtorch.wrap_tensor(gym.acquire_net_contact_force_tensor(sim))
            self._contact_force = force.view(n, len(bodies), 3)

        def index(names: Sequence[str], found: Sequence[str]) -> Tensor:
            return torch.tensor([found.index(name) for name in names], dtype=torch.int64, device=self.device)

        self._free = index(self.free_bodies, [part.name if part.free else "" for part in parts])
        self._joint, self._body = index(self.joints, joints), index(self.bodies, bodies)
        numbers = torch.tensor(self._actors.numbers(), dtype=torch.int32, device=self.device)  # [N, parts]
        self._floating = numbers[:, [p for p, part in enumerate(parts) if part.free]]
        self._jointed = numbers[:, [p for p, part in enumerate(parts) if part.joints]]
        self._efforts = Efforts(self.assets.model, joints, bodies, n, self.device)
        self._changed = torch.zeros(n, dtype=torch.bool, device=self.device)  # states to hand over before the next step
        self._any_changed = False
        self._kept: Tuple[Tensor, ...] = ()  # tensors the engine may still read
        self.unstable = torch.zeros(n, dtype=torch.bool, device=self.device)
        self._fetch()
        self.root_state = self._roots[:, self._free]
        self.joint_position, self.joint_velocity = (self._dofs[:, self._joint, k] for k in (0, 1))

    # ------------------------------------------------------------------------------------------------------ stepping

    def set_effort(self, effort: Tensor) -> None:
        self._efforts.set(effort.to(torch.float32))

    def step(self, substeps: int) -> None:
        if self._any_changed:
            self._hand_over()
        for _ in range(substeps):
            self._efforts.apply(self.gym, self.sim)  # a force lasts for one simulated step
            self.gym.simulate(self.sim)
            if self.device.type == "cpu":
                self.gym.fetch_results(self.sim, True)
        self._fetch()
        state = torch.cat((self._roots.flatten(1), self._dofs.flatten(1)), 1)
        self.unstable |= ~state.abs().lt(LARGEST).all(1)  # a comparison with NaN is false
        self._refresh()

    def _hand_over(self) -> None:
        """Applies the states that were set, in one call each."""
        from isaacgym import gymtorch

        ids, unwrap = self._changed.nonzero()[:, 0], gymtorch.unwrap_tensor
        floating, jointed = self._floating[ids].flatten(), self._jointed[ids].flatten()
        done = True
        if len(floating):
            done &= self.gym.set_actor_root_state_tensor_indexed(
                self.sim, unwrap(self._roots), unwrap(floating), len(floating)
            )
        if len(jointed):
            done &= self.gym.set_dof_state_tensor_indexed(self.sim, unwrap(self._dofs), unwrap(jointed), len(jointed))
        if not done:
            raise SimulatorError("isaacgym rejected the states; its output says why")
        self._kept, self._any_changed = (floating, jointed), False
        self._changed.zero_()

    def _fetch(self) -> None:
        """Refreshes the engine's tensors that are needed."""
        self.gym.refresh_actor_root_state_tensor(self.sim)
        if self.joints:
            self.gym.refresh_dof_state_tensor(self.sim)
        if BODY_STATE in self._outputs:
            self.gym.refresh_rigid_body_state_tensor(self.sim)
        if CONTACT_FORCE in self._outputs:
            self.gym.refresh_net_contact_force_tensor(self.sim)

    def _refresh(self) -> None:
        torch.index_select(self._roots, 1, self._free, out=self.root_state)
        torch.index_select(self._dofs[..., 0], 1, self._joint, out=self.joint_position)
        torch.index_select(self._dofs[..., 1], 1, self._joint, out=self.joint_velocity)

    def set_state(self, ids: Tensor, root_state: Tensor, joint_position: Tensor, joint_velocity: Tensor) -> None:
        if not len(ids):
            return
        state = [x.to(torch.float32) for x in (root_state, joint_position, joint_velocity)]
        self._roots[ids[:, None], self._free] = state[0]
        self._dofs[ids[:, None], self._joint] = torch.stack(state[1:], 2)
        self._efforts.clear(ids)
        self.unstable[ids] = ~torch.cat([x.flatten(1) for x in state], 1).abs().lt(LARGEST).all(1)
        self._changed[ids], self._any_changed = True, True
        self._refresh()
        if BODY_STATE in self._outputs:
            self._body_state[ids[:, None], self._body] = self._kinematics(*state)
        if CONTACT_FORCE in self._outputs:
            self._contact_force[ids] = 0

    def _kinematics(self, *state: Tensor) -> Tensor:
        """Body states [K, B, 13] from states [K, A, 13], [K, D], [K, D], computed by MuJoCo."""
        model, data, rows = self.assets.model, self._data, len(state[0])
        qpos, qvel = torch.from_numpy(model.qpos0).repeat(rows, 1), torch.zeros(rows, model.nv, dtype=torch.float64)
        self._cpu_layout.write(qpos, qvel, torch.arange(rows), *(x.cpu().double() for x in state))
        found: List[List[Tensor]] = [[] for _ in BODY_FIELDS]
        for i in range(rows):
            data.qpos[:], data.qvel[:] = qpos[i], qvel[i]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            mujoco.mj_comVel(model, data)
            for field, values in zip(BODY_FIELDS, found):
                values.append(torch.tensor(getattr(data, field)))
        return self._cpu_layout.body_state(*(torch.stack(values) for values in found)).to(self.device, torch.float32)

    def rest_state(self) -> Tuple[Tensor, Tensor, Tensor]:
        return self.layout.rest_state()

    # ------------------------------------------------------------------------------------------- outputs, properties

    def output(self, name: str) -> Tensor:
        if name not in self._outputs:
            raise SimulatorError(f"output {name!r} was not asked for when the simulator was made")
        return (self._body_state if name == BODY_STATE else self._contact_force)[:, self._body]

    def set_property(self, name: str, ids: Tensor, value: Tensor) -> None:
        if name not in self.capabilities:
            known = ", ".join(sorted(self.capabilities))
            raise SimulatorError(f"isaacgym has no property {name!r} of single environments; known: {known}")
        change = self._actors.set_mass if name == MASS_SCALE else self._actors.set_friction
        for e, scale in zip(ids.tolist(), value.tolist()):
            change(e, scale)
        # the setters may put an actor back where it was created
        self._changed[ids], self._any_changed = True, True

    def close(self) -> None:
        """Keeps the engine in use: a process can have no second one."""
        self.gym.destroy_sim(self.sim)
