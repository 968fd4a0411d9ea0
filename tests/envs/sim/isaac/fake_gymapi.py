"""Structures and constants of Isaac Gym's gymapi that envs/sim/isaac uses; test_isaacgym_types.py compares them."""

from __future__ import annotations

import types
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, List

import mujoco
import torch


class Struct:
    """An object with the given attributes and no others."""

    names: tuple = ()

    def __init__(self, **values: Any) -> None:
        for name in self.names:
            object.__setattr__(self, name, values.get(name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.names:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        object.__setattr__(self, name, value)


class Vec3(Struct):
    names = ("x", "y", "z")

    def __init__(self, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> None:
        assert all(type(v) is float for v in (x, y, z)), "pybind takes no numpy numbers here"
        super().__init__(x=x, y=y, z=z)

    def list(self) -> List[float]:
        return [self.x, self.y, self.z]


class Quat(Struct):
    names = ("x", "y", "z", "w")

    def __init__(self, x: float = 0.0, y: float = 0.0, z: float = 0.0, w: float = 1.0) -> None:
        super().__init__(x=x, y=y, z=z, w=w)


class Transform(Struct):
    names = ("p", "r")

    def __init__(self) -> None:
        super().__init__(p=Vec3(), r=Quat())


class Mat33(Struct):
    names = ("x", "y", "z")


class PhysXParams(Struct):
    names = (
        "use_gpu", "num_threads", "solver_type", "num_position_iterations", "num_velocity_iterations", "contact_offset",
        "rest_offset", "bounce_threshold_velocity", "max_depenetration_velocity", "default_buffer_size_multiplier",
        "contact_collection",
    )  # fmt: skip


class SimParams(Struct):
    names = ("dt", "substeps", "up_axis", "gravity", "use_gpu_pipeline", "physx")

    def __init__(self) -> None:
        super().__init__(physx=PhysXParams())


class AssetOptions(Struct):
    names = ("fix_base_link", "angular_damping", "linear_damping", "default_dof_drive_mode")


class PlaneParams(Struct):
    names = ("normal", "distance", "static_friction", "dynamic_friction", "restitution")


class RigidBodyProperties(Struct):
    names = ("mass", "invMass", "com", "inertia", "invInertia")


class RigidShapeProperties(Struct):
    names = ("friction",)


class Tensor:
    """What the engine calls a tensor."""

    def __init__(self, data: torch.Tensor) -> None:
        assert data.is_contiguous()
        self.data = data


class Asset:
    def __init__(self, folder: str, file: str, options: AssetOptions) -> None:
        self.tree, self.options = ET.parse(str(Path(folder) / file)).getroot(), options
        model = mujoco.MjModel.from_xml_string(ET.tostring(self.tree, encoding="unicode"))
        free = int(mujoco.mjtJoint.mjJNT_FREE)
        self.bodies = [model.body(b).name for b in range(model.nbody - 1, 0, -1)]
        self.joints = [model.joint(j).name for j in range(model.njnt - 1, -1, -1) if model.jnt_type[j] != free]


gymapi = types.ModuleType("isaacgym.gymapi")
gymtorch = types.ModuleType("isaacgym.gymtorch")
STRUCTS = (
    Vec3, Quat, Transform, Mat33, PhysXParams, SimParams, AssetOptions, PlaneParams, RigidBodyProperties,
    RigidShapeProperties,
)  # fmt: skip
CONSTANTS = ("UP_AXIS_Z", "SIM_PHYSX", "CC_LAST_SUBSTEP", "DOMAIN_SIM", "LOCAL_SPACE", "DOF_MODE_EFFORT")
