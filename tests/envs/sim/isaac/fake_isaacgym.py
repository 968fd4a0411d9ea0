"""A stand-in for Isaac Gym's gymapi and gymtorch: the functions that envs/sim calls, computed by MuJoCo.

It keeps to what is known of the engine: setters of tensors work at the next simulated step, may be called once before
it, and take int32 actor numbers; forces last for one step; tensors change at a refresh; changed masses put an actor
back where it was created; one simulator per process. It is as different from MuJoCo as the interface allows: joints and
bodies come in reverse order, masses come wrong from the importer. ``FakeGym.calls`` records the names of calls.
"""

from __future__ import annotations

import sys
import types
import xml.etree.ElementTree as ET
from typing import Any, Dict, List, Set

import mujoco
import numpy as np
import torch

from envolve.envs.sim.isaac import isaacgym
from tests.envs.sim.isaac.fake_gymapi import (
    CONSTANTS,
    STRUCTS,
    Asset,
    RigidBodyProperties,
    RigidShapeProperties,
    Tensor,
    gymapi,
    gymtorch,
)


class FakeGym:
    def __init__(self) -> None:
        self.calls: List[str] = []
        self.made = self.prepared = False
        self.models: List[mujoco.MjModel] = []  # of every environment
        self.ground: Any = None
        self.envs: List[List[tuple]] = []  # of (asset, pose) per actor
        self.filters: List[int] = []
        self.used: Set[str] = set()  # setters since the last step
        self.roots_set: Dict[int, torch.Tensor] = {}
        self.dofs_set: Dict[int, torch.Tensor] = {}
        self.joint_force = self.body_force = self.body_torque = None

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if isinstance(found, types.MethodType) and not name.startswith("_"):
            self.calls.append(name)
        return found

    # -------------------------------------------------------------------------------------------------------- creation

    def create_sim(self, compute_device, graphics_device, type, params):
        assert not self.made, "Foundation object exists already. Only one instance per process can be created"
        self.made, self.params = True, params
        return "sim"

    def add_ground(self, sim, params):
        self.ground = params

    def load_asset(self, sim, rootpath, filename, options):
        return Asset(rootpath, filename, options)

    def get_asset_dof_names(self, asset):
        return asset.joints

    def get_asset_rigid_body_names(self, asset):
        return asset.bodies

    def create_env(self, sim, lower, upper, per_row):
        self.envs.append([])
        return len(self.envs) - 1

    def create_actor(self, env, asset, pose, name, group, filter, segmentationId):
        assert group == env, "a group of its own keeps an environment from touching others"
        self.envs[env].append((asset, pose))
        self.filters.append(filter)
        return len(self.envs[env]) - 1

    def get_actor_index(self, env, actor, domain):
        return env * len(self.envs[0]) + actor

    def get_actor_dof_properties(self, env, actor):
        return np.zeros(len(self.envs[env][actor][0].joints), dtype=[("driveMode", "i4"), ("stiffness", "f4")])

    def set_actor_dof_properties(self, env, actor, properties):
        assert (properties["driveMode"] == int(gymapi.DOF_MODE_EFFORT)).all()
        return True

    def prepare_sim(self, sim):
        self._build()
        self.prepared, n = True, len(self.envs)
        self.parts = len(self.envs[0])
        joints, bodies = sum(len(a.joints) for a, _ in self.envs[0]), sum(len(a.bodies) for a, _ in self.envs[0])
        self.roots, self.dofs = torch.zeros(n * self.parts, 13), torch.zeros(n * joints, 2)
        self.body_states, self.forces = torch.zeros(n * bodies, 13), torch.zeros(n * bodies, 3)
        return True

    def _build(self) -> None:
        """All actors of an environment in one MuJoCo model; a copy and its data for every environment."""
        if self.models:
            return
        tree = ET.Element("mujoco")
        tree.extend([s for s in self.envs[0][0][0].tree if s.tag != "worldbody"])
        option = tree.find("option")
        option = ET.SubElement(tree, "option") if option is None else option
        option.set("timestep", str(self.params.dt))
        option.set("gravity", " ".join(map(str, self.params.gravity.list())))
        world = ET.SubElement(tree, "worldbody")
        if self.ground:
            ET.SubElement(
                world,
                "geom",
                {
                    "type": "plane",
                    "size": "10 10 1",
                    "pos": f"0 0 {-self.ground.distance}",
                    "condim": "3",
                    "friction": f"{self.ground.static_friction} 0.005 0.0001",
                    "contype": "1",
                    "conaffinity": "1",
                },
            )
        for asset, pose in self.envs[0]:
            body = asset.tree.find("worldbody/body")
            if not asset.options.fix_base_link:
                body.set("pos", " ".join(map(str, pose.p.list())))
                body.set("quat", f"{pose.r.w} {pose.r.x} {pose.r.y} {pose.r.z}")
            world.append(body)
        text = ET.tostring(tree, encoding="unicode")
        self.models = [mujoco.MjModel.from_xml_string(text) for _ in self.envs]
        for model in self.models:
            model.body_mass[:] *= 1.7  # the importer knows better
            model.body_inertia[:] *= 1.3
        self.data = [mujoco.MjData(model) for model in self.models]

    # ----------------------------------------------------------------------------------------------------- properties

    def get_actor_rigid_body_names(self, env, actor):
        return self.envs[env][actor][0].bodies

    def get_actor_rigid_body_properties(self, env, actor):
        return [RigidBodyProperties() for _ in self.envs[env][actor][0].bodies]

    def set_actor_rigid_body_properties(self, env, actor, properties, recomputeInertia):
        self._build()
        model, asset = self.models[env], self.envs[env][actor][0]
        for name, p in zip(asset.bodies, properties):
            if p.mass is None:
                continue
            b, inertia = model.body(name).id, np.array([p.inertia.x.list(), p.inertia.y.list(), p.inertia.z.list()])
            inverse = np.array([p.invInertia.x.list(), p.invInertia.y.list(), p.invInertia.z.list()])
            assert np.allclose(inertia @ inverse, np.eye(3), atol=1e-6) and abs(p.mass * p.invMass - 1) < 1e-9
            principal, axes = np.diag(inertia), np.eye(3)
            if not np.allclose(inertia, np.diag(principal), rtol=0, atol=1e-9 * principal.max()):
                principal, axes = np.linalg.eigh(inertia)
            axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])
            model.body_mass[b], model.body_ipos[b], model.body_inertia[b] = p.mass, p.com.list(), principal
            quaternion = np.zeros(4)
            mujoco.mju_mat2Quat(quaternion, axes.flatten())
            model.body_iquat[b] = quaternion
        mujoco.mj_setConst(model, mujoco.MjData(model))
        if self.prepared:  # the engine forgets where the actor was
            self._place_as_created(env, actor)
        return True

    def get_actor_rigid_shape_properties(self, env, actor):
        self._build()
        model = self.models[env]
        return [RigidShapeProperties(friction=float(model.geom_friction[g, 0])) for g in self._geoms(env, actor)]

    def set_actor_rigid_shape_properties(self, env, actor, properties):
        for g, shape in zip(self._geoms(env, actor), properties):
            self.models[env].geom_friction[g, 0] = shape.friction
        return True

    def _geoms(self, env: int, actor: int) -> List[int]:
        model, names = self.models[env], self.envs[env][actor][0].bodies
        return [g for g in range(model.ngeom) if model.body(model.geom_bodyid[g]).name in names]

    # -------------------------------------------------------------------------------------------------------- tensors

    def acquire_actor_root_state_tensor(self, sim):
        assert self.prepared
        return Tensor(self.roots)

    def acquire_dof_state_tensor(self, sim):
        return Tensor(self.dofs)

    def acquire_rigid_body_state_tensor(self, sim):
        return Tensor(self.body_states)

    def acquire_net_contact_force_tensor(self, sim):
        return Tensor(self.forces)

    def _once(self, setter: str) -> None:
        assert setter not in self.used, f"{setter} was called twice before a step"
        self.used.add(setter)

    def set_dof_actuation_force_tensor(self, sim, force):
        self._once("set_dof_actuation_force_tensor")
        self.joint_force = force.data.clone().view(len(self.envs), -1)
        return True

    def apply_rigid_body_force_tensors(self, sim, force, torque, space):
        assert space is gymapi.LOCAL_SPACE
        self._once("apply_rigid_body_force_tensors")
        self.body_force, self.body_torque = force.data.clone(), torque.data.clone()
        return True

    def set_actor_root_state_tensor_indexed(self, sim, states, actors, count):
        self._once("set_actor_root_state_tensor_indexed")
        assert states.data.shape == (len(self.envs), self.parts, 13) and states.data.dtype == torch.float32
        assert actors.data.dtype == torch.int32 and len(actors.data) == count > 0
        assert len(set(actors.data.tolist())) == count
        self.roots_set = {i: states.data.view(-1, 13)[i].clone() for i in actors.data.tolist()}
        return True

    def set_dof_state_tensor_indexed(self, sim, states, actors, count):
        self._once("set_dof_state_tensor_indexed")
        assert actors.data.dtype == torch.int32 and len(actors.data) == count > 0
        rows = states.data.view(len(self.envs), -1, 2)
        for i in actors.data.tolist():
            env, actor = divmod(i, self.parts)
            first = sum(len(a.joints) for a, _ in self.envs[env][:actor])
            assert self.envs[env][actor][0].joints, "an actor without joints has no such state"
            self.dofs_set[i] = rows[env, first : first + len(self.envs[env][actor][0].joints)].clone()
        return True

    # ----------------------------------------------------------------------------------------------------- simulation

    def _place_root(self, env: int, actor: int, root: torch.Tensor) -> None:
        model, data, asset = self.models[env], self.data[env], self.envs[env][actor][0]
        joint, r = data.joint(model.body(asset.bodies[-1]).jntadr[0]), root.double().numpy()
        joint.qpos[:] = [*r[:3], r[6], *r[3:6]]
        back, spin = r[[6, 3, 4, 5]] * [1, -1, -1, -1], np.zeros(3)
        mujoco.mju_rotVecQuat(spin, r[10:], back / np.linalg.norm(back))
        joint.qvel[:] = [*r[7:10], *spin]
        data.qacc_warmstart[:] = 0

    def _place_joints(self, env: int, actor: int, dofs: torch.Tensor) -> None:
        data = self.data[env]
        for name, (position, velocity) in zip(self.envs[env][actor][0].joints, dofs.tolist()):
            data.joint(name).qpos[0], data.joint(name).qvel[0] = position, velocity
        data.qacc_warmstart[:] = 0

    def _place_as_created(self, env: int, actor: int) -> None:
        asset, pose = self.envs[env][actor]
        if not asset.options.fix_base_link:
            p, r = pose.p, pose.r
            self._place_root(env, actor, torch.tensor([p.x, p.y, p.z, r.x, r.y, r.z, r.w] + 6 * [0.0]))
        self._place_joints(env, actor, torch.zeros(len(asset.joints), 2))

    def simulate(self, sim):
        for i, root in self.roots_set.items():
            self._place_root(*divmod(i, self.parts), root)
        for i, dofs in self.dofs_set.items():
            self._place_joints(*divmod(i, self.parts), dofs)
        for e, (model, data) in enumerate(zip(self.models, self.data)):
            names = [name for asset, _ in self.envs[e] for name in asset.joints]
            if self.joint_force is not None:
                for name, force in zip(names, self.joint_force[e].tolist()):
                    data.qfrc_applied[model.joint(name).dofadr[0]] = force
            if self.body_force is not None:
                mujoco.mj_kinematics(model, data)
                bodies = [name for asset, _ in self.envs[e] for name in asset.bodies]
                for b, name in enumerate(bodies):
                    axes = data.body(name).xmat.reshape(3, 3)
                    force, torque = (t.view(len(self.envs), -1, 3)[e, b] for t in (self.body_force, self.body_torque))
                    data.body(name).xfrc_applied[:] = [*(axes @ force.numpy()), *(axes @ torque.numpy())]
            mujoco.mj_step(model, data)
            data.qfrc_applied[:] = data.xfrc_applied[:] = 0
        self.used, self.roots_set, self.dofs_set = set(), {}, {}
        self.joint_force = self.body_force = self.body_torque = None

    def fetch_results(self, sim, wait):
        assert wait

    def refresh_actor_root_state_tensor(self, sim):
        for e, (model, data) in enumerate(zip(self.models, self.data)):
            for a, (asset, _) in enumerate(self.envs[e]):
                self.roots[e * self.parts + a] = self._body(model, data, asset.bodies[-1])
        return True

    def _body(self, model: mujoco.MjModel, data: mujoco.MjData, name: str) -> torch.Tensor:
        mujoco.mj_forward(model, data)
        b, velocity = model.body(name).id, np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, b, velocity, 0)
        return torch.tensor(np.array([*data.xpos[b], *data.xquat[b][[1, 2, 3, 0]], *velocity[3:], *velocity[:3]]))

    def refresh_dof_state_tensor(self, sim):
        rows = self.dofs.view(len(self.envs), -1, 2)
        for e, data in enumerate(self.data):
            for j, name in enumerate([name for asset, _ in self.envs[e] for name in asset.joints]):
                rows[e, j] = torch.tensor([data.joint(name).qpos[0], data.joint(name).qvel[0]])
        return True

    def refresh_rigid_body_state_tensor(self, sim):
        names = [name for asset, _ in self.envs[0] for name in asset.bodies]
        rows = [self._body(m, d, name) for m, d in zip(self.models, self.data) for name in names]
        self.body_states.copy_(torch.stack(rows))
        return True

    def refresh_net_contact_force_tensor(self, sim):
        names = [name for asset, _ in self.envs[0] for name in asset.bodies]
        rows = self.forces.view(len(self.envs), -1, 3)
        rows.zero_()
        for e, (model, data) in enumerate(zip(self.models, self.data)):
            for c in range(data.ncon):
                force = np.zeros(6)
                mujoco.mj_contactForce(model, data, c, force)
                world = torch.from_numpy(data.contact[c].frame.reshape(3, 3).T @ force[:3])
                for geom, sign in zip(data.contact[c].geom, (-1, 1)):
                    name = model.body(model.geom_bodyid[geom]).name
                    if name in names:
                        rows[e, names.index(name)] += sign * world
        return True

    def destroy_sim(self, sim):
        self.prepared = False


def install(monkeypatch: Any) -> FakeGym:
    """Makes ``import isaacgym`` find this, for one test. Returns what acquire_gym will."""
    gym, package = FakeGym(), types.ModuleType("isaacgym")
    for struct in STRUCTS:
        setattr(gymapi, struct.__name__, struct)
    for number, constant in enumerate(CONSTANTS):
        setattr(gymapi, constant, number)
    gymapi.acquire_gym = lambda: gym  # type: ignore[attr-defined]
    gymtorch.wrap_tensor = lambda tensor: tensor.data  # type: ignore[attr-defined]
    gymtorch.unwrap_tensor = Tensor  # type: ignore[attr-defined]
    package.gymapi, package.gymtorch = gymapi, gymtorch  # type: ignore[attr-defined]
    for name, module in (("", package), (".gymapi", gymapi), (".gymtorch", gymtorch)):
        monkeypatch.setitem(sys.modules, "isaacgym" + name, module)
    monkeypatch.setattr(isaacgym, "_in_use", False)
    return gym
