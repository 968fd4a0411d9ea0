"""A PPO population through the compiled loop: hyperparameters and worlds in, ``TrainResult`` out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Optional, Union

import numpy as np
from torch import Tensor

from agents.hyper import Hyper
from agents.kernels import ppo
from agents.kernels.ahead import compiled_ahead
from agents.kernels.tasks import TASK_CODES
from agents.kernels.worlds import create_world
from agents.ppo import check, rollout_length
from agents.ppo_policy import initial_weights, networks
from agents.result import TrainResult
from envs.section import EnvSection
from envs.task import Task


def why_not(task: Task) -> Optional[str]:
    """The reason why the compiled loop cannot train this population, or None if it can."""
    if task.name not in TASK_CODES:
        return f"the task {task.name} has no compiled twin"
    return None


def _settings(task: Task, section: Any, test_each: bool) -> ppo.Settings:
    own: Dict[str, Any] = {
        "max_steps": task.max_steps, "solved_reward": task.solved_reward, "test_each": test_each,
        "rollout_steps": rollout_length(section, task.max_steps), "monte_carlo": section.advantage == "monte_carlo",
    }  # fmt: skip
    names = ppo.Settings._fields
    return ppo.Settings(**{name: own[name] if name in own else getattr(section, name) for name in names})


def train_population(
    task: Task, kind: str, section: EnvSection, worlds: Union[np.ndarray, Tensor], hyper: Hyper, keys: np.ndarray,
    test_each: bool, threads: int = 1,
) -> TrainResult:  # fmt: skip
    """As ``agents.ppo.train_population``, on the CPU; members are shared among ``threads``, and the result is the same
    for any number of them."""
    compiled_ahead("ppo")
    members, s = len(keys), hyper.section
    check(s, hyper, task.max_steps)  # type: ignore[arg-type]
    agents = networks(task, hyper)
    weights = initial_weights(task, agents, hyper, keys)
    result = TrainResult.before_training(weights, s.train_episodes, s.test_episodes)
    counts = np.zeros((members, 5), np.int64)
    worlds = np.ascontiguousarray(worlds, dtype=np.float32)
    ukeys = np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)

    def one(i: int) -> None:
        own: Any = hyper.member(i)
        actor, critic = agents[i]
        c = _settings(task, own, test_each)
        own_weights = weights[i, : task.action_size + actor.size + critic.size]
        agent = ppo.PPO.create(task, actor, c, own.test_noise, own_weights)
        ppo.train(
            agent, create_world(task, kind, section, own.gamma, worlds[i]),
            create_world(task, "real", section, own.gamma, worlds[i]), c, ukeys[i],
            result.test_return[i], result.episode_return[i], result.episode_length[i], counts[i],
        )  # fmt: skip

    if threads > 1 and members > 1:
        with ThreadPoolExecutor(threads) as pool:  # the loop releases the GIL; members take unequal time
            list(pool.map(one, range(members)))
    else:
        for i in range(members):
            one(i)
    result.train_steps, result.updates, result.episodes, result.real_steps = (counts[:, j].copy() for j in range(4))
    result.status = counts[:, 4].astype(np.int8)
    return result
