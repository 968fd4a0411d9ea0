"""Agents of Stable-Baselines3 in evolved worlds and on the task (https://jmlr.org/papers/v22/20-1364.html).

They train in ``envolve.envs.worlds.export``'s environments and are tested as this project's agents are: greedily, in
the test episodes that ``envolve.agents.common.rollout`` gives a seed. All settings are Stable-Baselines3's defaults but
those named in KINDS. An agent trains for as many whole rollouts as fit into its steps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.agents import peers
from envolve.agents.common.result import OK, REASONS
from envolve.agents.common.rollout import test_episodes
from envolve.core import rng
from envolve.core.interrupt import deaf_children
from envolve.core.pool import pool
from envolve.core.registry import nearest
from envolve.envs.outside.task import OutsideTask
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.export import codes
from envolve.envs.worlds.world import RealTask
from envolve.outer.config.load import ConfigError

REQUIREMENT = "stable-baselines3>=2.4"
# name -> algorithm, what differs from its defaults. DQN copies its net into the target net every 10,000 steps: within
# fewer it learns from the net it was born with, which sb3_dqn_target does not
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "sb3_dqn": ("dqn", {}),
    "sb3_dqn_target": ("dqn", {"target_update_interval": 100}),
    "sb3_ppo": ("ppo", {}),
    "sb3_a2c": ("a2c", {}),
}
DISCRETE_ONLY = ("dqn",)


@dataclass(frozen=True)
class Baseline:
    """Learner of Stable-Baselines3."""

    name: str  # a key of KINDS
    settings: dict[str, Any]  # over the defaults
    steps: int  # whole rollouts

    @property
    def title(self) -> str:
        return self.name


def fitting(task: Task) -> list[str]:
    """The kinds that can learn ``task``, by its actions."""
    return [name for name, (algorithm, _) in KINDS.items() if not task.action_size or algorithm not in DISCRETE_ONLY]


def default_settings(name: str) -> dict[str, Any]:
    """The numbers and switches among the algorithm's arguments."""
    return {
        setting: value
        for setting, value in peers.defaults(KINDS[name][0]).items()
        if isinstance(value, (int, float)) and setting not in ("verbose", "_init_setup_model")
    }


def baseline(name: str, steps: int, own: dict[str, Any]) -> Baseline:
    """own: settings over those of KINDS. Raises ConfigError."""
    known = default_settings(name)
    for key, value in own.items():
        if key not in known:
            near = nearest(key, known, cutoff=0.0)
            words = f"found no setting of Stable-Baselines3's {KINDS[name][0].upper()}, expected e.g. {near}"
            raise ConfigError([f"--agent-set {name}.{key}: {words}"])
        if isinstance(value, bool) != isinstance(known[key], bool) or not isinstance(value, (int, float)):
            kind = type(known[key]).__name__
            raise ConfigError([f"--agent-set {name}.{key}: found {value!r}, expected a value of type {kind}"])
    settings = {**KINDS[name][1], **own}
    rollout = peers.rollout(KINDS[name][0], settings)
    if steps < rollout:
        raise ConfigError([f"--steps: found {steps}, expected at least {rollout}: one rollout of {name}"])
    return Baseline(name, settings, steps // rollout * rollout)


# --------------------------------------------------------------------------------------------------------- the agents

Run = Callable[..., Iterable[dict[str, Any]]]  # as ``map``


@dataclass(frozen=True)
class BaselineJob:
    """One agent to be trained and tested, in whatever process."""

    baseline: Baseline
    world: str  # a model.pt; "": the task itself
    env_name: str
    max_steps: int
    seed: int
    tests: int

    def task(self) -> Task:
        return make_task(self.env_name, max_steps=self.max_steps)


def train_baselines(
    who: Baseline, task: Task, worlds: list[str], seeds: np.ndarray, tests: int, run: Run, title: str
) -> dict[str, list[Any]]:
    """Same as ``training.train_agents``. worlds: a file per agent, "" for the task itself; run: see
    :func:`processes`."""
    began = time.monotonic()
    jobs = [BaselineJob(who, world, task.name, task.max_steps, int(seed), tests) for world, seed in zip(worlds, seeds)]
    rows: list[dict[str, Any]] = []
    for row in run(train_one, jobs):
        rows.append(row)
        if len(rows) % 10 == 0 or len(rows) == len(jobs):
            seconds = time.monotonic() - began
            print(f"{title}: {len(rows)} of {len(jobs)} {who.title} agents, {seconds:.0f} s", file=sys.stderr)
    return {name: [row[name] for row in rows] for name in rows[0]}


@contextmanager
def processes(count: int) -> Iterator[Run]:
    """Function that trains jobs side by side and gives their results in the order of the jobs, which do not depend on
    the number of processes; one alone is this process."""
    if count == 1:
        yield map
        return
    with pool(count) as executor:

        def run(work: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterable[Any]:
            with deaf_children():  # map() starts the processes
                return executor.map(work, jobs)

        yield run


def train_one(job: BaselineJob) -> dict[str, Any]:
    """-> quantities of one agent, as ``training.quantities`` has them of several."""
    from stable_baselines3.common.monitor import Monitor

    from envolve.envs.worlds.export import WorldEnv, load_world

    task = job.task()
    env = Monitor(load_world(job.world, job.max_steps) if job.world else WorldEnv(RealTask(task, 1)))
    kind = peers.algorithm(KINDS[job.baseline.name][0])
    model = kind("MlpPolicy", env, seed=job.seed % 2**31, device="cpu", **job.baseline.settings)
    status = peers.learn(model, job.baseline.steps)
    returns = tested(model, task, job.seed, job.tests) if status == OK else []
    return {
        "return": float(np.mean(returns)) if returns else float("nan"),
        "train_steps": model.num_timesteps,
        "episodes": len(env.get_episode_rewards()),
        "failed": REASONS[status],
        "test_returns": returns,
    }


def tested(model: Any, task: Task, seed: int, tests: int) -> list[float]:
    """Greedy returns on the task, in the test episodes of this seed. model: sees and acts in the task's own units."""

    def policy(obs: Tensor, step: Tensor) -> Tensor:
        seen = obs[0] if task.num_states is None else obs[0].argmax(-1)  # of a cell its one-hot code
        own = task.to_own(seen.numpy(), False) if isinstance(task, OutsideTask) else seen.numpy()
        chosen = model.predict(own, deterministic=True)[0]
        if isinstance(task, OutsideTask):
            chosen = codes(task, chosen)
        return torch.from_numpy(chosen).unsqueeze(0)

    key = rng.fold(torch.tensor([seed]), rng.FINAL_TEST)
    returns, _ = test_episodes(task, policy, key, torch.zeros_like(key), tests, 1)
    return returns[0].tolist()
