"""mjlab: its registry, and one of its environments."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from envolve.envs.managers.library import BODIES, CONTACT_TIMES, Driver, Library
from envolve.envs.sim.simulator import SimulatorError

KEPT_BY_FORWARD = ("qacc_warmstart", "qacc", "sensordata")  # what a call with the same state may change


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

    def reward(self, values: Tensor, weights: Tensor, dt: float) -> Tensor:
        total = values.new_zeros(len(values))
        for value, weight in zip(values.T, weights.T):
            total += torch.nan_to_num(value * weight * dt, nan=0.0, posinf=0.0, neginf=0.0)
        return total

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
    quaternion = "(w, x, y, z)"
    effort = "qfrc_actuator"
    parts = {
        **BODIES,
        "site_pos_w": ("site_names", "m", "positions of the sites, world"),
        "site_lin_vel_w": ("site_names", "m/s", "velocities of the sites, world"),
    }
    sensed = {
        "found": ("", "number of contacts found"),
        "force": ("N", "contact force"),
        **CONTACT_TIMES,
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
