"""Isaac Lab 3: its registry, and one of its environments. docs/isaaclab.md has a table of what differs from mjlab."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Tuple

import torch
from torch import Tensor

from envolve.envs.managers.library import BODIES, CONTACT_TIMES, Driver, Library
from envolve.envs.sim.simulator import SimulatorError

ENTRY_POINT = "isaaclab.envs:ManagerBasedRLEnv"  # of tasks that are made of managers


class IsaacLabDriver(Driver):
    """``step`` would reset environments that the task's own terms end, before their last observation is seen. It finds
    nothing to do: the candidates say which environments begin anew, and ``reset`` follows."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._reset_idx = env._reset_idx
        env._reset_idx = lambda env_ids: None

    def step(self, action: Tensor) -> None:
        self.env.step(action)

    def reset(self, ids: Tensor) -> None:
        self.env._reset_idx, nothing = self._reset_idx, self.env._reset_idx
        try:
            with self._history_of_others(ids):
                self.env.reset(env_ids=ids)
        finally:
            self.env._reset_idx = nothing

    @contextlib.contextmanager
    def _history_of_others(self, ids: Tensor) -> Iterator[None]:
        """``reset`` observes all environments, which would enter into all histories. Only those of ids keep it."""
        manager = self.env.observation_manager
        histories = _made(manager._group_obs_term_history_buffer)
        delays = _made(manager._group_obs_term_delay_buffer)
        before = [(b._buffer.clone(), b._num_pushes.clone()) for b in (*histories, *delays)]
        lags = [(d._time_lags.clone(), d._write_index.clone()) for d in delays]
        yield
        others = torch.ones(self.env.num_envs, dtype=torch.bool, device=ids.device)
        others[ids] = False
        for delay, (lag, index) in zip(delays, lags):  # a ring, with one place to write to for all
            delay._buffer[:, ids] = delay._buffer[(delay._write_index - 1) % len(delay._buffer)][:, ids]
            delay._time_lags[others] = lag[others]
            delay._write_index.copy_(index)
        for buffer, (content, pushes) in zip((*histories, *delays), before):
            rows = (slice(None), others) if getattr(buffer, "_stack_dim_internal", None) is None else (others,)
            buffer._buffer[rows] = content[rows]
            buffer._num_pushes[others] = pushes[others]

    def reward(self, values: Tensor, weights: Tensor, dt: float) -> Tensor:
        return torch.where(weights == 0, 0.0, values * weights).sum(1) * dt

    def entities(self) -> Dict[str, Any]:
        scene = self.env.scene
        return {**scene.articulations, **scene.rigid_objects}

    def read(self, value: Any) -> Tensor:
        """Data are arrays of warp behind ``ProxyArray``."""
        return value if isinstance(value, Tensor) else value.torch

    def rest_root(self, entity: Any) -> Tensor:
        return torch.cat([self.read(entity.data.default_root_pose), self.read(entity.data.default_root_vel)], 1)

    def put_root(self, entity: Any, state: Tensor, ids: Tensor) -> None:
        entity.write_root_pose_to_sim_index(root_pose=state[:, :7].contiguous(), env_ids=ids.int())
        entity.write_root_velocity_to_sim_index(root_velocity=state[:, 7:].contiguous(), env_ids=ids.int())

    def put_joints(self, entity: Any, position: Tensor, velocity: Tensor, ids: Tensor) -> None:
        entity.write_joint_position_to_sim_index(position=position.contiguous(), env_ids=ids.int())
        entity.write_joint_velocity_to_sim_index(velocity=velocity.contiguous(), env_ids=ids.int())

    def coordinates(self) -> Tuple[Tensor, Tensor]:
        entities = [e for kind in self.env.scene.get_state().values() for e in kind.values() if isinstance(e, dict)]
        parts = [part for entity in entities for part in entity.items()]
        positions = [x.flatten(1) for name, x in parts if not name.endswith("velocity")]
        velocities = [x.flatten(1) for name, x in parts if name.endswith("velocity")]
        return torch.cat(positions, 1), torch.cat(velocities, 1)


def _made(groups: Dict[str, Dict[str, Any]]) -> List[Any]:
    """Buffers of observation terms that hold something."""
    return [buffer for group in groups.values() for buffer in group.values() if buffer._buffer is not None]


class IsaacLab(Library):
    name, title, versions = "isaaclab", "Isaac Lab", "3.0."
    install = "make setup-isaaclab (docs/isaaclab.md)"
    driver = IsaacLabDriver
    quaternion = "(x, y, z, w)"
    effort = "applied_torque"
    parts = BODIES
    sensed = {
        "net_normal_forces_w": ("N", "normal contact force of each body, world"),
        **CONTACT_TIMES,
        "ray_hits_w": ("m", "where rays hit, world"),
        "lin_acc_b": ("m/s^2", "acceleration, body's own frame"),
        "ang_vel_b": ("rad/s", "angular velocity, body's own frame"),
    }

    def load(self) -> Any:
        version = self.version()
        try:
            import gymnasium
            import isaaclab_tasks  # noqa: F401  registers the tasks
        except Exception as e:
            raise SimulatorError(f"Isaac Lab {version} cannot be imported: {type(e).__name__}: {e}") from e
        return gymnasium.registry

    def task_names(self) -> List[str]:
        specs = self.load().values()
        return [spec.id for spec in specs if spec.entry_point == ENTRY_POINT and "env_cfg_entry_point" in spec.kwargs]

    def configuration(self, task: str, num_envs: int, device: str = "cpu") -> Any:
        """All environments stand at one place, so that every candidate's are the same; they do not meet."""
        name = self.find_task(task)
        from isaaclab_tasks.utils import parse_env_cfg

        cfg = parse_env_cfg(name, device=device, num_envs=num_envs)
        cfg.seed = 0  # of terrains; everything else is drawn by ``draws.py``
        cfg.scene.env_spacing = 0.0
        return cfg

    def make(self, cfg: Any, device: str, until: contextlib.ExitStack) -> Any:
        """There is one simulation in a process at a time."""
        from isaaclab.app import launch_simulation
        from isaaclab.envs import ManagerBasedRLEnv

        until.enter_context(launch_simulation(cfg, {"device": device}))
        return ManagerBasedRLEnv(cfg=cfg)


ISAACLAB = IsaacLab()
