"""A stand-in for Isaac Lab 3's modules, registry and environment, as far as the adapter uses them: the points of
``fake.py`` and a ball that flies. It has what differs from mjlab: names of classes and modules, resets within a step,
arrays behind ``.torch``, quaternions (x, y, z, w), configurations with attributes, histories of observations.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import pytest
import torch
from torch import Tensor

from tests.envs.managers import fake

TASK = "Isaac-Fake-Point"
STEP = 0.05


class Array:
    """ProxyArray: a tensor only when it is asked for."""

    def __init__(self, tensor: Tensor) -> None:
        self.torch = tensor

    @property
    def shape(self) -> Any:
        return self.torch.shape


def configuration() -> Any:
    given = fake.configuration()
    sections = {name: SimpleNamespace(**getattr(given, name)) for name in ("rewards", "terminations", "events")}
    return SimpleNamespace(
        scene=SimpleNamespace(num_envs=1, env_spacing=2.0),
        sim=SimpleNamespace(device="cuda:0"),
        seed=None,
        commands=SimpleNamespace(**given.commands),
        actions=SimpleNamespace(**given.actions),
        noise=0.01,
        **sections,
    )


class Rewards(fake.Rewards):
    """The sum of all terms, then times the step."""

    def compute(self, dt: float) -> Tensor:
        parts = [t.func(self.env, **t.params) * t.weight if t.weight else torch.zeros(self.env.num_envs)
                 for t in self.cfg.values()]  # fmt: skip
        return torch.stack(parts, 1).sum(1) * dt


class Events(fake.Events):
    def apply(
        self, mode: str, env_ids: Any = None, dt: float | None = None, global_env_step_count: int | None = None
    ) -> None:
        if mode == "reset":
            assert global_env_step_count is not None
        super().apply(mode, env_ids, dt)


class Commands(fake.Commands):
    def compute(self, dt: float) -> None:  # type: ignore[override]
        for term in self.terms.values():
            term.time_left -= dt
            due = (term.time_left <= 0).nonzero().flatten()
            if len(due):
                term._resample(due)


class History:
    """CircularBuffer of two observations, the newest last."""

    def __init__(self, n: int) -> None:
        self._buffer: Tensor | None = None
        self._num_pushes, self._stack_dim_internal = torch.zeros(n, dtype=torch.int64), 1

    def append(self, new: Tensor) -> None:
        before = torch.stack([new, new], 1) if self._buffer is None else self._buffer
        first = (self._num_pushes == 0).view(-1, 1, 1)
        self._buffer = torch.where(first, new[:, None], torch.stack([before[:, 1], new], 1))
        self._num_pushes += 1


class Delay:
    """DelayBuffer: a ring of three observations, of which the one before the newest is given."""

    def __init__(self, n: int) -> None:
        self._buffer: Tensor | None = None
        self._num_pushes, self._write_index = torch.zeros(n, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        self._time_lags = torch.ones(n, dtype=torch.int64)

    def compute(self, new: Tensor) -> Tensor:
        if self._buffer is None:
            self._buffer = torch.zeros(3, *new.shape)
        self._buffer[self._write_index] = new
        at = (self._write_index - torch.minimum(self._time_lags, self._num_pushes)) % 3
        out = self._buffer[at, torch.arange(len(new))]
        self._num_pushes += 1
        self._write_index += 1
        self._write_index %= 3
        return out


class Observations:
    """The state with noise, the last two times, and one step late."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.history, self.delay = History(env.num_envs), Delay(env.num_envs)
        self._group_obs_term_history_buffer = {"policy": {"state": self.history}}
        self._group_obs_term_delay_buffer = {"policy": {"late": self.delay}}

    def compute(self, update_history: bool = False) -> dict[str, Any]:
        assert update_history
        data = self.env.data
        state = torch.cat([data.qpos, data.qvel, self.env.command_manager.get_command("goal")], 1)
        state = state + self.env.cfg.noise * torch.randn_like(state)
        self.history.append(state)
        late = self.delay.compute(state)
        assert self.history._buffer is not None
        return {"policy": torch.cat([self.history._buffer.flatten(1), late], 1)}

    def reset(self, env_ids: Tensor) -> None:
        for buffer in (self.history, self.delay):
            buffer._num_pushes[env_ids] = 0


class Articulation:
    """A fixed robot of one joint."""

    joint_names, body_names, is_fixed_base = ["slide"], ["cart"], True

    def __init__(self, env: Any) -> None:
        self.env = env

    @property
    def data(self) -> Any:
        d, zero, R = self.env.data, torch.zeros(self.env.num_envs, 1), self.env.num_envs
        tensors = {
            "joint_pos": d.qpos, "joint_vel": d.qvel, "joint_acc": d.qacc, "applied_torque": self.env.force,
            "default_joint_pos": zero, "default_joint_vel": zero,
            "body_link_pos_w": torch.cat([d.qpos, zero, zero], 1)[:, None],
            "body_link_lin_vel_w": zero.expand(R, 3)[:, None],
        }  # fmt: skip
        return SimpleNamespace(**{name: Array(t) for name, t in tensors.items()})

    def write_joint_position_to_sim_index(self, *, position: Tensor, env_ids: Tensor) -> None:
        self.env.data.qpos[env_ids] = position

    def write_joint_velocity_to_sim_index(self, *, velocity: Tensor, env_ids: Tensor) -> None:
        self.env.data.qvel[env_ids] = velocity


class RigidObject:
    """A ball that flies on."""

    body_names = ["ball"]

    def __init__(self, env: Any) -> None:
        self.env, R = env, env.num_envs
        self.rest = torch.tensor([0.0, 0, 1, 0, 0, 0, 1]).repeat(R, 1), torch.zeros(R, 6)
        self.pose, self.speed = (part.clone() for part in self.rest)

    @property
    def data(self) -> Any:
        gravity = torch.tensor([0.0, 0, -1]).repeat(self.env.num_envs, 1)
        tensors = {
            "default_root_pose": self.rest[0], "default_root_vel": self.rest[1], "heading_w": self.pose[:, 0] * 0,
            "root_link_pos_w": self.pose[:, :3], "root_link_quat_w": self.pose[:, 3:], "projected_gravity_b": gravity,
            "root_link_lin_vel_w": self.speed[:, :3], "root_link_ang_vel_w": self.speed[:, 3:],
            "root_link_lin_vel_b": self.speed[:, :3], "root_link_ang_vel_b": self.speed[:, 3:],
            "body_link_pos_w": self.pose[:, None, :3], "body_link_lin_vel_w": self.speed[:, None, :3],
        }  # fmt: skip
        return SimpleNamespace(**{name: Array(t) for name, t in tensors.items()})

    def write_root_pose_to_sim_index(self, *, root_pose: Tensor, env_ids: Tensor) -> None:
        self.pose[env_ids] = root_pose

    def write_root_velocity_to_sim_index(self, *, root_velocity: Tensor, env_ids: Tensor) -> None:
        self.speed[env_ids] = root_velocity


class Scene:
    terrain = None

    def __init__(self, env: Any) -> None:
        self.env, self.env_origins = env, torch.zeros(env.num_envs, 3)
        self.articulations, self.rigid_objects = {"robot": Articulation(env)}, {"ball": RigidObject(env)}
        force = Array(torch.zeros(env.num_envs, 1, 3))
        self.sensors = {"contact_force": SimpleNamespace(data=SimpleNamespace(net_normal_forces_w=force))}

    def get_state(self) -> dict[str, Any]:
        robot, ball = self.env.data, self.rigid_objects["ball"]
        return {
            "articulation": {"robot": {"joint_position": robot.qpos.clone(), "joint_velocity": robot.qvel.clone()}},
            "rigid_object": {"ball": {"root_pose": ball.pose.clone(), "root_velocity": ball.speed.clone()}},
            "gripper": {"hand": torch.zeros(self.env.num_envs)},
        }

    def write_data_to_sim(self) -> None:
        pass


class ManagerBasedRLEnv:
    step_dt = physics_dt = STEP
    max_episode_length, device = 30, "cpu"
    alive = 0  # one simulation in a process

    def __init__(self, cfg: Any) -> None:
        assert ManagerBasedRLEnv.alive == 0, "Simulation context already exists. Cannot create a new one."
        ManagerBasedRLEnv.alive += 1
        self.cfg, self.num_envs = cfg, cfg.scene.num_envs
        sections = {name: dict(vars(getattr(cfg, name))) for name in ("rewards", "terminations", "events", "commands")}
        for name in ("rewards", "terminations"):
            for term in sections[name].values():
                term.func = term.func(cfg=term, env=self) if isinstance(term.func, type) else term.func
        zeros = torch.zeros(self.num_envs, 1)
        self.data = SimpleNamespace(**{name: zeros.clone() for name in ("qpos", "qvel", "qacc")})
        self.force = zeros.clone()
        self.sim = SimpleNamespace(forward=lambda: None)
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.int64)
        self.scene = Scene(self)
        self.event_manager = Events(self, sections["events"])
        self.command_manager = Commands(self, sections["commands"])
        action = SimpleNamespace(_scale=cfg.actions.force.scale, action_dim=1, _joint_names=["slide"])
        self.action_manager = SimpleNamespace(total_action_dim=1, get_term=lambda name: action)
        self.reward_manager = Rewards(self, sections["rewards"])
        self.termination_manager = fake.Terminations(self, sections["terminations"])
        self.termination_manager.compute()
        self.observation_manager = Observations(self)
        torch.rand(7, 3)  # a table of materials at startup
        self.obs_buf: dict[str, Any] = {}

    def step(self, action: Tensor) -> Any:
        self.force[:] = action * self.action_manager.get_term("force")._scale
        self.data.qacc[:] = self.force
        self.data.qvel += STEP * self.data.qacc
        self.data.qpos += STEP * self.data.qvel
        ball = self.scene.rigid_objects["ball"]
        ball.pose[:, :3] += STEP * ball.speed[:, :3]
        self.episode_length_buf += 1
        manager = self.termination_manager
        manager.compute()
        terminated, time_outs = manager.terminated, manager.time_outs
        reward = self.reward_manager.compute(dt=STEP)
        over = (terminated | time_outs).nonzero().flatten().int()
        if len(over):
            self._reset_idx(over)
        self.command_manager.compute(dt=STEP)
        if "interval" in self.event_manager.active_terms:
            self.event_manager.apply(mode="interval", dt=STEP)
        self.obs_buf = self.observation_manager.compute(update_history=True)
        return self.obs_buf, reward, terminated, time_outs, {}

    def _reset_idx(self, env_ids: Tensor) -> None:
        self.event_manager.apply(mode="reset", env_ids=env_ids, global_env_step_count=0)
        self.observation_manager.reset(env_ids)
        self.reward_manager.reset(env_ids)
        self.command_manager.reset(env_ids)
        self.event_manager.reset(env_ids)
        self.episode_length_buf[env_ids] = 0

    def reset(self, env_ids: Tensor, *, seed: int | None = None) -> Any:
        self._reset_idx(env_ids)
        self.scene.write_data_to_sim()
        self.sim.forward()
        self.obs_buf = self.observation_manager.compute(update_history=True)
        return self.obs_buf, {}

    def close(self) -> None:
        ManagerBasedRLEnv.alive -= 1


launched: list[str] = []  # devices of simulations that run


@contextlib.contextmanager
def launch_simulation(cfg: Any, launcher_args: dict[str, Any]) -> Iterator[None]:
    launched.append(launcher_args["device"])
    yield
    launched.pop()


def parse_env_cfg(task_name: str, device: str | None = None, num_envs: int | None = None) -> Any:
    cfg = gymnasium.spec(task_name).kwargs["env_cfg_entry_point"]()
    cfg.sim.device, cfg.scene.num_envs = device, num_envs
    return cfg


def install(monkeypatch: pytest.MonkeyPatch, version: str = "3.0.0") -> None:
    """Puts the stand-in in the place of Isaac Lab."""
    import importlib.metadata as metadata

    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "isaaclab" else real(name))
    parts: dict[str, dict[str, Any]] = {
        "isaaclab": {},
        "isaaclab.app": {"launch_simulation": launch_simulation},
        "isaaclab.envs": {"ManagerBasedRLEnv": ManagerBasedRLEnv},
        "isaaclab_tasks": {},
        "isaaclab_tasks.utils": {"parse_env_cfg": parse_env_cfg},
    }
    for name, content in parts.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(ManagerBasedRLEnv, "alive", 0)
    kwargs = {"env_cfg_entry_point": configuration}
    entries = {TASK: "isaaclab.envs:ManagerBasedRLEnv", "Isaac-Fake-Direct": "isaaclab_tasks.direct:PointEnv"}
    for name, entry in entries.items():
        spec = gymnasium.envs.registration.EnvSpec(name, entry_point=entry, kwargs=kwargs)
        monkeypatch.setitem(gymnasium.registry, name, spec)
