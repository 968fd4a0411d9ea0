"""The actors of an Isaac Gym simulation: every environment has one per tree of bodies of the model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, List

import numpy as np
from torch import Tensor

from envolve.envs.sim.isaac.assets import Assets

if TYPE_CHECKING:
    from isaacgym import gymapi

SPACING = 4.0  # m between environments. They never touch, but PhysX looks for pairs that are near each other


class Actors:
    """Creates the actors. rest: [A, 13], initial states of floating ones."""

    def __init__(self, gym: gymapi.Gym, sim: gymapi.Sim, assets: Assets, rest: Tensor, num_envs: int) -> None:
        self.gym, self.assets = gym, assets
        self._envs: List[gymapi.Env] = []
        self._handles: List[List[int]] = []  # by environment and part
        loaded = self._load(sim)
        self.joints = [name for asset in loaded for name in gym.get_asset_dof_names(asset)]
        self.bodies = [name for asset in loaded for name in gym.get_asset_rigid_body_names(asset)]
        self._create(sim, loaded, rest, num_envs)
        shapes = [gym.get_actor_rigid_shape_properties(self._envs[0], actor) for actor in self._handles[0]]
        self._friction = [[shape.friction for shape in part] for part in shapes]
        for e in range(num_envs):
            self.set_mass(e, 1.0)

    def _load(self, sim: gymapi.Sim) -> List[gymapi.Asset]:
        from isaacgym import gymapi

        loaded = []
        with tempfile.TemporaryDirectory() as folder:
            for part in self.assets.parts:
                options = gymapi.AssetOptions()
                options.fix_base_link = not part.free
                options.angular_damping = options.linear_damping = 0.0  # MuJoCo has none
                options.default_dof_drive_mode = int(gymapi.DOF_MODE_EFFORT)
                (Path(folder) / f"{part.name}.xml").write_text(part.xml, encoding="utf-8")
                loaded.append(self.gym.load_asset(sim, folder, f"{part.name}.xml", options))
        return loaded

    def _create(self, sim: gymapi.Sim, loaded: List[gymapi.Asset], rest: Tensor, num_envs: int) -> None:
        from isaacgym import gymapi

        gym, half = self.gym, SPACING / 2
        for e in range(num_envs):
            lower, upper = gymapi.Vec3(-half, -half, 0.0), gymapi.Vec3(half, half, half)
            env, actors, states = gym.create_env(sim, lower, upper, int(num_envs**0.5)), [], iter(rest.tolist())
            for a, (part, asset) in enumerate(zip(self.assets.parts, loaded)):
                pose = gymapi.Transform()
                if part.free:  # in the order of the model, as free_bodies
                    state = next(states)
                    pose.p, pose.r = gymapi.Vec3(*state[:3]), gymapi.Quat(*state[3:7])
                # shapes with a common bit in the filter do not touch
                actor = gym.create_actor(env, asset, pose, part.name, e, 0 if part.touches_itself else 1 << a, 0)
                if part.joints:
                    drives = gym.get_actor_dof_properties(env, actor)
                    drives["driveMode"].fill(int(gymapi.DOF_MODE_EFFORT))
                    gym.set_actor_dof_properties(env, actor, drives)
                actors.append(actor)
            self._envs.append(env)
            self._handles.append(actors)

    def numbers(self) -> List[List[int]]:
        """Indices of every actor in the simulation, [N, parts]."""
        from isaacgym import gymapi

        return [
            [self.gym.get_actor_index(env, actor, gymapi.DOMAIN_SIM) for actor in actors]
            for env, actors in zip(self._envs, self._handles)
        ]

    def set_friction(self, e: int, scale: float) -> None:
        for actor, frictions in zip(self._handles[e], self._friction):
            shapes = self.gym.get_actor_rigid_shape_properties(self._envs[e], actor)
            for shape, friction in zip(shapes, frictions):
                shape.friction = friction * scale
            self.gym.set_actor_rigid_shape_properties(self._envs[e], actor, shapes)

    def set_mass(self, e: int, scale: float) -> None:
        """Mass, centre of mass and inertia as compiled by MuJoCo, times scale."""
        from isaacgym import gymapi

        model = self.assets.model
        for actor, part in zip(self._handles[e], self.assets.parts):
            properties = self.gym.get_actor_rigid_body_properties(self._envs[e], actor)
            names = self.gym.get_actor_rigid_body_names(self._envs[e], actor)
            for b in part.bodies:
                p = properties[names.index(model.body(b).name)]
                inertia = scale * _inertia(model.body_iquat[b], model.body_inertia[b])
                p.mass = scale * float(model.body_mass[b])
                p.invMass = 1 / p.mass
                p.com = gymapi.Vec3(*(float(v) for v in model.body_ipos[b]))
                p.inertia, p.invInertia = _matrix(inertia), _matrix(np.linalg.inv(inertia))
            self.gym.set_actor_rigid_body_properties(self._envs[e], actor, properties, False)


def _inertia(quaternion: np.ndarray, principal: np.ndarray) -> np.ndarray:
    """Inertia R diag(principal) R^T in the body's axes; quaternion: (w, x, y, z) of the principal axes."""
    w, x, y, z = quaternion
    axes = np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip
    return axes @ np.diag(principal) @ axes.T


def _matrix(rows: np.ndarray) -> gymapi.Mat33:
    from isaacgym import gymapi

    matrix = gymapi.Mat33()
    matrix.x, matrix.y, matrix.z = (gymapi.Vec3(*(float(v) for v in row)) for row in rows)
    return matrix
