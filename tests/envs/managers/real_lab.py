"""Isaac Lab itself, as it is installed in an environment of its own (make test-isaaclab), with its task Isaac-Cartpole.
Isaac Lab downloads the models of its robots; here the cartpole is written by this file, so nothing is downloaded."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from envolve.core import rng
from envolve.envs.managers.draws import Draws
from envolve.envs.managers.environment import quiet
from envolve.envs.managers.isaaclab import ISAACLAB, IsaacLab

needs_isaaclab = pytest.mark.skipif(
    importlib.util.find_spec("isaaclab") is None, reason="Isaac Lab is not installed here: make test-isaaclab"
)
CARTPOLE = "Isaac-Cartpole"


def write_cartpole(path: Path) -> None:
    """A cart on a rail along x, and a pole on it that turns about y, with Isaac Lab's names of joints."""
    from pxr import Gf, Usd, UsdGeom, UsdPhysics

    stage = Usd.Stage.CreateNew(str(path))
    UsdGeom.SetStageUpAxis(stage, "Z")
    root = UsdGeom.Xform.Define(stage, "/Robot").GetPrim()
    stage.SetDefaultPrim(root)
    UsdPhysics.ArticulationRootAPI.Apply(root)
    bodies = {
        "slider": ((6, 0.05, 0.05), 0.0, 1.0),  # size in m, height in m, mass in kg
        "cart": ((0.2, 0.2, 0.2), 0.0, 1.0),
        "pole": ((0.05, 0.05, 1.0), 0.5, 0.5),
    }
    for name, (size, height, mass) in bodies.items():
        body = UsdGeom.Xform.Define(stage, f"/Robot/{name}")
        body.AddTranslateOp().Set(Gf.Vec3d(0, 0, height))
        UsdPhysics.RigidBodyAPI.Apply(body.GetPrim())
        inertia = UsdPhysics.MassAPI.Apply(body.GetPrim())
        inertia.CreateMassAttr(mass)
        inertia.CreateDiagonalInertiaAttr(Gf.Vec3f(mass / 20))
        shape = UsdGeom.Cube.Define(stage, f"/Robot/{name}/shape")
        shape.CreateSizeAttr(1.0)
        shape.AddScaleOp().Set(Gf.Vec3f(*size))
    UsdPhysics.FixedJoint.Define(stage, "/Robot/fixed").CreateBody1Rel().SetTargets(["/Robot/slider"])
    rail = UsdPhysics.PrismaticJoint.Define(stage, "/Robot/slider_to_cart")
    hinge = UsdPhysics.RevoluteJoint.Define(stage, "/Robot/cart_to_pole")
    for joint, first, second, axis in ((rail, "slider", "cart", "X"), (hinge, "cart", "pole", "Y")):
        joint.CreateBody0Rel().SetTargets([f"/Robot/{first}"])
        joint.CreateBody1Rel().SetTargets([f"/Robot/{second}"])
        joint.CreateAxisAttr(axis)
    rail.CreateLowerLimitAttr(-4.0)
    rail.CreateUpperLimitAttr(4.0)
    hinge.CreateLocalPos1Attr(Gf.Vec3f(0, 0, -0.5))
    stage.GetRootLayer().Save()


def use_own_model(monkeypatch: pytest.MonkeyPatch, path: Path, **changes: Any) -> None:
    """Isaac-Cartpole with the model above and without its ground, which is downloaded too. What makes candidates hard
    to keep apart is added: a box that falls, commands, and observations of three times, some of them late. changes:
    noise: of observations; push: mean seconds between changes of the joints' positions, and of commands."""
    write_cartpole(path)
    original = IsaacLab.configuration

    def configuration(self: IsaacLab, task: str, num_envs: int, device: str = "cpu") -> Any:
        from isaaclab.assets import RigidObjectCfg
        from isaaclab.managers import EventTermCfg, ObservationTermCfg, SceneEntityCfg
        from isaaclab.sim import CuboidCfg, MassPropertiesCfg, RigidBodyPropertiesCfg
        from isaaclab.utils.noise import UniformNoiseCfg
        from isaaclab_tasks.core.cartpole import mdp

        cfg = original(self, task, num_envs, device)
        cfg.scene.robot.spawn.usd_path, cfg.scene.ground = str(path), None
        policy = cfg.observations.policy
        policy.history_length = 3
        policy.joint_vel_rel.delay_max_lag = 2
        policy.command = ObservationTermCfg(func=mdp.generated_commands, params={"command_name": "velocity"})
        box = CuboidCfg(
            size=(0.2, 0.2, 0.2), rigid_props=RigidBodyPropertiesCfg(), mass_props=MassPropertiesCfg(mass=1.0)
        )
        cfg.scene.box = RigidObjectCfg(
            prim_path="{ENV_REGEX_NS}/Box", spawn=box, init_state=RigidObjectCfg.InitialStateCfg(pos=(0.0, 3.0, 1.0))
        )
        cfg.events.reset_box = EventTermCfg(
            func=mdp.reset_root_state_uniform,
            mode="reset",
            params={
                "asset_cfg": SceneEntityCfg("box"),
                "pose_range": {"x": (-0.5, 0.5), "yaw": (-3.0, 3.0)},
                "velocity_range": {"x": (-1.0, 1.0)},
            },
        )
        between = (0.5 * changes["push"], 1.5 * changes["push"]) if "push" in changes else (9.0, 9.0)
        ranges = mdp.UniformVelocityCommandCfg.Ranges(
            lin_vel_x=(-1.0, 1.0), lin_vel_y=(-1.0, 1.0), ang_vel_z=(-1.0, 1.0)
        )
        cfg.commands = SimpleNamespace(
            velocity=mdp.UniformVelocityCommandCfg(asset_name="box", resampling_time_range=between, ranges=ranges)
        )
        if "noise" in changes:
            policy.enable_corruption = True
            policy.joint_pos_rel.noise = UniformNoiseCfg(n_min=-changes["noise"], n_max=changes["noise"])
        if "push" in changes:
            cfg.events.push = EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="interval",
                interval_range_s=between,
                params={**cfg.events.reset_pole_position.params, "position_range": (-0.2, 0.2)},
            )
        return cfg

    monkeypatch.setattr(IsaacLab, "configuration", configuration)


class PlainEnvironment:
    """Isaac Lab's own environment of N environments, with its own resets, and nothing of this project but the source of
    random numbers: those of a candidate with this key."""

    def __init__(self, key: int, n: int) -> None:
        cfg = ISAACLAB.configuration(CARTPOLE, n)
        self.until = contextlib.ExitStack()
        self.key = rng.fold(torch.tensor([key]), rng.RESET)
        self.draws = Draws(self.key, n, torch.device("cpu"))
        with quiet(), self.draws, self.draws.of(None, shared=True):
            self.env = ISAACLAB.make(cfg, "cpu", self.until)
        self.until.callback(self.env.close)
        reset = self.env._reset_idx

        def of_these(env_ids: Tensor) -> None:
            with self.draws.of(env_ids.long()):
                reset(env_ids)

        self.env._reset_idx = of_these

    def run(self, actions: list[Tensor], staggered: bool) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Observation [N, F], reward, terminated and time outs [N] of each action [N, A]."""
        env, N = self.env, self.env.num_envs
        for _ in range(2):  # the first reset of a new simulation drops the velocities
            with self.draws:
                self.draws.begin(self.key)
                env.reset(env_ids=torch.arange(N))
        if staggered:
            env.episode_length_buf[:] = torch.arange(N) * env.max_episode_length // N
        for action in actions:
            with self.draws:
                obs, reward, terminated, time_outs, _ = env.step(action)
            yield obs["policy"].clone(), reward.clone(), terminated.clone(), time_outs.clone()
        self.until.close()
