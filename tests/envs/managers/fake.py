"""A stand-in for mjlab's registry and managers, as far as the adapter uses them: points that are pushed along a line.

It has what makes candidates hard to keep apart: noise on observations, resets of some environments, pushes at random
times, commands that are drawn anew, a stateful reward term, a solver that begins where it ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

TASK = "Fake-Point"


@dataclass
class Term:
    func: Any
    params: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    time_out: bool = False
    mode: str = "reset"
    interval_range_s: tuple[float, float] = (0.0, 0.0)
    is_global_time: bool = False


@dataclass
class Ranges:
    target: tuple[float, float] = (-1.0, 1.0)


@dataclass
class CommandCfg:
    resampling_time_range: tuple[float, float] = (0.1, 0.3)
    ranges: Ranges = field(default_factory=Ranges)


@dataclass
class ActionCfg:
    scale: float = 1.0


def near(env: Any, std: float) -> Tensor:
    error = env.data.qpos[:, 0] - env.command_manager.get_command("goal")[:, 0]
    return torch.exp(-error.square() / std**2)


def slow(env: Any, limit: float) -> Tensor:
    """Cannot be called with a number per environment."""
    return -env.data.qvel[:, 0].square() if limit > 0.5 else -env.data.qvel[:, 0].abs()


class Steadiness:
    """Keeps state: a running mean of the speed."""

    def __init__(self, cfg: Any, env: Any) -> None:
        self.share = cfg.params["share"]
        self.mean = torch.zeros(env.num_envs)

    def __call__(self, env: Any, share: float) -> Tensor:
        self.mean = (1 - self.share) * self.mean + self.share * env.data.qvel[:, 0].abs()
        return -self.mean

    def reset(self, env_ids: Tensor) -> None:
        self.mean[env_ids] = 0


def far(env: Any, limit: float) -> Tensor:
    return env.data.qpos[:, 0].abs() > limit


def time_out(env: Any) -> Tensor:
    return env.episode_length_buf >= env.max_episode_length


def put(env: Any, env_ids: Tensor, position: tuple[float, float]) -> None:
    env.data.qpos[env_ids, 0] = torch.rand(len(env_ids)) * (position[1] - position[0]) + position[0]
    env.data.qvel[env_ids] = 0


def push(env: Any, env_ids: Tensor, speed: float) -> None:
    env.data.qvel[env_ids, 0] += torch.empty(len(env_ids)).uniform_(-speed, speed)


def configuration() -> Any:
    return SimpleNamespace(
        scene=SimpleNamespace(num_envs=1),
        sim=SimpleNamespace(nconmax=None),
        seed=None,
        auto_reset=True,
        scale_rewards_by_dt=True,
        rewards={
            "near": Term(near, {"std": 0.5}, 2.0),
            "slow": Term(slow, {"limit": 1.0}, 0.1),
            "steady": Term(Steadiness, {"share": 0.2}, 0.3),
            "unused": Term(near, {"std": 1.0}, 0.0),
        },
        terminations={"time_out": Term(time_out, time_out=True), "far": Term(far, {"limit": 1.5})},
        events={
            "put": Term(put, {"position": (-0.5, 0.5)}),
            "push": Term(push, {"speed": 1.0}, mode="interval", interval_range_s=(0.1, 0.2)),
        },
        commands={"goal": CommandCfg()},
        actions={"force": ActionCfg()},
    )


class Registry:
    """mjlab.tasks.registry."""

    def list_tasks(self) -> list[str]:
        return [TASK]

    def load_env_cfg(self, name: str) -> Any:
        return configuration()


class Rewards:
    def __init__(self, env: Any, cfg: dict[str, Term]) -> None:
        self.env, self.cfg, self.active_terms = env, cfg, list(cfg)
        self._with_state = [term for term in cfg.values() if hasattr(term.func, "reset")]

    def get_term_cfg(self, name: str) -> Term:
        return self.cfg[name]

    def compute(self, dt: float) -> Tensor:
        total = torch.zeros(self.env.num_envs)
        for term in self.cfg.values():
            if term.weight:
                total += torch.nan_to_num(term.func(self.env, **term.params) * term.weight * dt, 0.0, 0.0, 0.0)
        return total

    def reset(self, env_ids: Tensor) -> None:
        for term in self._with_state:
            term.func.reset(env_ids=env_ids)


class Terminations(Rewards):
    def compute(self) -> None:  # type: ignore[override]
        self.dones = {name: term.func(self.env, **term.params) for name, term in self.cfg.items()}
        none = torch.zeros(self.env.num_envs, dtype=torch.bool)
        self.terminated, self.time_outs = none.clone(), none.clone()
        for name, term in self.cfg.items():
            (self.time_outs if term.time_out else self.terminated).logical_or_(self.dones[name])

    def get_term(self, name: str) -> Tensor:
        return self.dones[name]


class Events:
    def __init__(self, env: Any, cfg: dict[str, Term]) -> None:
        self.env, self.cfg = env, cfg
        self.active_terms = {mode: [n for n, t in cfg.items() if t.mode == mode] for mode in ("reset", "interval")}
        self._mode_term_cfgs = {m: [cfg[n] for n in names] for m, names in self.active_terms.items()}
        self._interval_term_time_left = [self._drawn(t, env.num_envs) for t in self._mode_term_cfgs["interval"]]

    @staticmethod
    def _drawn(term: Term, n: int) -> Tensor:
        low, high = term.interval_range_s
        return torch.rand(n) * (high - low) + low

    def get_term_cfg(self, name: str) -> Term:
        return self.cfg[name]

    def apply(self, mode: str, env_ids: Any = None, dt: float | None = None) -> None:
        for index, term in enumerate(self._mode_term_cfgs[mode]):
            if mode == "reset":
                term.func(self.env, env_ids, **term.params)
                continue
            left = self._interval_term_time_left[index]
            left -= dt
            due = (left < 1e-6).nonzero().flatten()
            if len(due):
                left[due] = self._drawn(term, len(due))
                term.func(self.env, due, **term.params)

    def reset(self, env_ids: Tensor) -> None:
        for term, left in zip(self._mode_term_cfgs["interval"], self._interval_term_time_left):
            left[env_ids] = self._drawn(term, len(env_ids))


class Goal:
    """A command term."""

    def __init__(self, env: Any, cfg: CommandCfg) -> None:
        self.env, self.cfg = env, cfg
        self.command, self.time_left = torch.zeros(env.num_envs, 1), torch.zeros(env.num_envs)

    def _resample(self, env_ids: Tensor) -> None:
        self.time_left[env_ids] = self.time_left[env_ids].uniform_(*self.cfg.resampling_time_range)
        self.command[env_ids, 0] = torch.empty(len(env_ids)).uniform_(*self.cfg.ranges.target)

    def compute(self, dt: float, env_ids: Any) -> None:
        if env_ids is None:
            self.time_left -= dt
            due = (self.time_left <= 0).nonzero().flatten()
            if len(due):
                self._resample(due)
                self.env.sim.forward()


class Commands:
    def __init__(self, env: Any, cfg: dict[str, CommandCfg]) -> None:
        self.terms = {name: Goal(env, c) for name, c in cfg.items()}
        self.active_terms = list(cfg)

    def get_command(self, name: str) -> Tensor:
        return self.terms[name].command

    def get_term(self, name: str) -> Goal:
        return self.terms[name]

    def compute(self, dt: float, env_ids: Any = None) -> None:
        for term in self.terms.values():
            term.compute(dt, env_ids)

    def reset(self, env_ids: Tensor) -> None:
        for term in self.terms.values():
            term._resample(env_ids)


class Entity:
    """A robot of one joint."""

    joint_names, body_names, site_names, is_fixed_base = ("slide",), (), (), True

    def __init__(self, env: Any) -> None:
        self.env = env

    @property
    def data(self) -> Any:
        d, zero = self.env.data, torch.zeros(self.env.num_envs, 1)
        return SimpleNamespace(
            joint_pos=d.qpos,
            joint_vel=d.qvel,
            joint_acc=d.qacc,
            default_joint_pos=zero,
            default_joint_vel=zero,
            qfrc_actuator=self.env.force,
        )

    def write_joint_state_to_sim(self, position: Tensor, velocity: Tensor, env_ids: Tensor) -> None:
        self.env.data.qpos[env_ids], self.env.data.qvel[env_ids] = position, velocity


class Environment:
    """ManagerBasedRlEnv."""

    step_dt, physics_dt, max_episode_length, device = 0.05, 0.05, 30, "cpu"

    def __init__(self, cfg: Any, device: str = "cpu") -> None:
        self.cfg, self.num_envs = cfg, cfg.scene.num_envs
        for section in (cfg.rewards, cfg.terminations):
            for term in section.values():
                term.func = term.func(cfg=term, env=self) if isinstance(term.func, type) else term.func
        zeros = torch.zeros(self.num_envs, 1)
        self.data = SimpleNamespace(
            qpos=zeros.clone(),
            qvel=zeros.clone(),
            qacc=zeros.clone(),
            qacc_warmstart=zeros.clone(),
            sensordata=zeros.clone(),
        )
        self.force = zeros.clone()
        self.sim = SimpleNamespace(data=self.data, forward=self._forward)
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.int64)
        self._manual_reset_pending = torch.zeros(self.num_envs, dtype=torch.bool)
        self.scene = SimpleNamespace(
            terrain=None, entities={"point": Entity(self)}, sensors={}, env_origins=torch.zeros(self.num_envs, 3)
        )
        self.event_manager = Events(self, cfg.events)
        self.command_manager = Commands(self, cfg.commands)
        action = SimpleNamespace(_scale=cfg.actions["force"].scale, action_dim=1, target_names=["slide"])
        self.action_manager = SimpleNamespace(total_action_dim=1, get_term=lambda name: action)
        self.reward_manager = Rewards(self, cfg.rewards)
        self.termination_manager = Terminations(self, cfg.terminations)
        self.termination_manager.compute()
        self.obs_buf: dict[str, Tensor] = {}

    def _forward(self) -> None:
        """Changes its own start, as mujoco_warp's solver does in the last digits."""
        self.data.qacc_warmstart[:] = 0.9 * self.data.qacc_warmstart + 0.1 * self.data.qpos

    def _observe(self) -> None:
        state = torch.cat([self.data.qpos, self.data.qvel, self.command_manager.get_command("goal")], 1)
        self.obs_buf = {"actor": state + 0.01 * torch.randn_like(state)}

    def step(self, action: Tensor) -> None:
        assert not self._manual_reset_pending.any()
        scale = self.action_manager.get_term("force")._scale
        self.force[:] = action * scale
        self.data.qacc[:] = self.force + 1e-3 * self.data.qacc_warmstart
        self.data.qvel += self.step_dt * self.data.qacc
        self.data.qpos += self.step_dt * self.data.qvel
        self.episode_length_buf += 1
        self.termination_manager.compute()
        self.reward_manager.compute(dt=self.step_dt)
        self.event_manager.apply(mode="interval", dt=self.step_dt)
        self._manual_reset_pending |= self.termination_manager.terminated | self.termination_manager.time_outs
        self.sim.forward()
        self.command_manager.compute(dt=self.step_dt)
        self._observe()

    def reset(self, *, env_ids: Tensor) -> None:
        self.data.qacc_warmstart[env_ids] = 0
        self.event_manager.apply(mode="reset", env_ids=env_ids)
        self.reward_manager.reset(env_ids)
        self.event_manager.reset(env_ids)
        self.command_manager.reset(env_ids)
        self.episode_length_buf[env_ids] = 0
        self._manual_reset_pending[env_ids] = False
        self.sim.forward()
        self.command_manager.compute(dt=0.0, env_ids=env_ids)
        self._observe()

    def close(self) -> None:
        pass
