"""mjlab: its registry, and one of its environments."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from envolve.envs.managers.library import Driver, Library
from envolve.envs.sim.simulator import SimulatorError

KEPT_BY_FORWARD = ("qacc_warmstart", "qacc", "sensordata")  # what a call with the same state may change
W, B = "world", "body's own frame"
QUATERNION = "(w, x, y, z)"


class MjlabDriver(Driver):
    """``sim.forward`` computes all environments, and begins its solver where it ended last. A second call within a
    step, which one environment's reset or new command asks for, would move all others in the last digits. They keep
    what they had."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._forwarded = False
        self._moved = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        sim = env.sim
        self._forward, self._kept = sim.forward, [getattr(sim.data, name) for name in KEPT_BY_FORWARD]
        sim.forward = self.forward

    def forward(self) -> None:
        first, self._forwarded = not self._forwarded, True
        if first:
            self._forward()
            return
        before = [part[:].clone() for part in self._kept]
        self._forward()
        others = ~self._moved
        for part, old in zip(self._kept, before):
            part[:] = torch.where(others.view(-1, *[1] * (old.dim() - 1)), old, part[:])

    def step(self, action: Tensor) -> None:
        self._forwarded = False
        self._moved.zero_()
        self.env.step(action)
        self.env._manual_reset_pending[:] = False  # the candidates say which environments begin anew

    def reset(self, ids: Tensor) -> None:
        self._forwarded = True
        self._moved.zero_()
        self._moved[ids] = True
        self.env.reset(env_ids=ids)

    def moved(self, ids: Tensor) -> None:
        self._moved[ids] = True

    def dropped(self) -> Optional[str]:
        data = self.env.sim.data
        found, room = getattr(data, "nacon", None), getattr(data, "naconmax", None)
        if found is None or room is None or not bool((found[:] > room).any()):
            return None
        return (
            f"more contacts than its pool of {room} holds, some were dropped: candidates may no longer be independent"
            " (sim.nconmax of the task's configuration)"
        )

    def entities(self) -> Dict[str, Any]:
        return {n: e for n, e in self.env.scene.entities.items() if type(e).__name__ != "TerrainEntity"}

    def rest_root(self, entity: Any) -> Tensor:
        return self.read(entity.data.default_root_state)

    def put_root(self, entity: Any, state: Tensor, ids: Tensor) -> None:
        entity.write_root_state_to_sim(state, env_ids=ids)

    def put_joints(self, entity: Any, position: Tensor, velocity: Tensor, ids: Tensor) -> None:
        entity.write_joint_state_to_sim(position, velocity, env_ids=ids)

    def coordinates(self) -> Tuple[Tensor, Tensor]:
        data = self.env.sim.data
        return data.qpos[:].clone(), data.qvel[:].clone()


class Mjlab(Library):
    name, title, versions = "mjlab", "mjlab", "1.6."
    install = "make setup-mjlab (docs/mjlab.md)"
    driver = MjlabDriver
    quaternion = QUATERNION
    floating = {
        "root_link_pos_w": ("m", f"position of the root, {W}"),
        "root_link_quat_w": ("", f"of the root, quaternion {QUATERNION}, body to world coordinates"),
        "root_link_lin_vel_w": ("m/s", f"of the root, {W}"),
        "root_link_ang_vel_w": ("rad/s", f"of the root, {W}"),
        "root_link_lin_vel_b": ("m/s", f"of the root, {B}"),
        "root_link_ang_vel_b": ("rad/s", f"of the root, {B}"),
        "projected_gravity_b": ("", "direction of gravity in the root's frame: (0, 0, -1) when level"),
        "heading_w": ("rad", "yaw of the root"),
    }
    joints = {
        "joint_pos": ("rad or m", "positions"),
        "default_joint_pos": ("rad or m", "the pose that mjlab calls default"),
        "joint_vel": ("rad/s or m/s", "velocities"),
        "joint_acc": ("rad/s^2 or m/s^2", "accelerations"),
        "qfrc_actuator": ("N m or N", "effort of the actuators at the joints"),
    }
    parts = {
        "body_link_pos_w": ("body_names", "m", f"positions of the bodies, {W}"),
        "body_link_lin_vel_w": ("body_names", "m/s", f"velocities of the bodies, {W}"),
        "site_pos_w": ("site_names", "m", f"positions of the sites, {W}"),
        "site_lin_vel_w": ("site_names", "m/s", f"velocities of the sites, {W}"),
    }
    sensed = {
        "found": ("", "number of contacts found"),
        "force": ("N", "contact force"),
        "current_air_time": ("s", "time since the last contact, 0 in contact"),
        "last_air_time": ("s", "length of the last flight"),
        "current_contact_time": ("s", "time in contact, 0 in the air"),
        "last_contact_time": ("s", "length of the last contact"),
        "heights": ("m", "height above the ground"),
    }

    def load(self) -> Any:
        version = self.version()
        try:
            import mjlab.tasks  # noqa: F401  registers the tasks
            from mjlab.tasks import registry
        except Exception as e:
            raise SimulatorError(f"mjlab {version} cannot be imported: {type(e).__name__}: {e}") from e
        return registry

    def task_names(self) -> List[str]:
        return list(self.load().list_tasks())

    def configuration(self, task: str, num_envs: int, device: str = "cpu") -> Any:
        """Environments are reset by the caller, so that the observation at an episode's end is seen."""
        name = self.find_task(task)
        cfg = self.load().load_env_cfg(name)
        cfg.scene.num_envs = num_envs
        cfg.seed = 0  # of terrains; everything else is drawn by ``draws.py``
        cfg.auto_reset = False
        return cfg

    def make(self, cfg: Any, device: str, until: contextlib.ExitStack) -> Any:
        from mjlab.envs import ManagerBasedRlEnv

        return ManagerBasedRlEnv(cfg=cfg, device=device)

    def is_part(self, sensor: str) -> bool:
        """True for the raw sensors of which mjlab makes a contact sensor."""
        ends = ("_found", "_force", "_torque", "_dist", "_pos", "_normal", "_tangent")
        return sensor.endswith(ends) and "/" not in sensor


MJLAB = Mjlab()
