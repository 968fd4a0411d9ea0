"""A DDQN population through the compiled kernel: hyperparameters and worlds in, ``TrainResult`` out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Optional, Union

import numpy as np
from torch import Tensor

from agents.ddqn import DDQN
from agents.hyper import Hyper
from agents.kernels import ddqn as kernel
from agents.kernels.tasks import TASK_CODES
from agents.population import initial_weights, nets_of, size
from agents.replay import capacity
from agents.result import TrainResult
from envs.networks import ACTIVATIONS
from envs.section import EnvSection
from envs.task import Task


def why_not(task: Task, hyper: Hyper) -> Optional[str]:
    """The reason why the kernel cannot train this population, or None if it can."""
    if task.name not in TASK_CODES:
        return f"the task {task.name} has no compiled twin"
    if hyper.section.activation_fn == "prelu":  # type: ignore[attr-defined]
        return "an agent with PReLU learns its slope, which the kernel does not"
    return None


def train_population(
    task: Task, kind: str, section: EnvSection, worlds: Union[np.ndarray, Tensor], hyper: Hyper, keys: np.ndarray,
    test_each: bool, threads: int = 1,
) -> TrainResult:  # fmt: skip
    """As ``agents.ddqn.train_population``, on the CPU; members are shared among ``threads``, and the result is the same
    for any number of them."""
    members, s = len(keys), hyper.section
    shared = {
        "act": ACTIVATIONS.index(s.activation_fn),  # type: ignore[attr-defined]
        "hidden_layer": np.maximum(1, hyper["hidden_layer"]),
        "max_steps": task.max_steps,
        "solved_reward": task.solved_reward,
        "capacity": capacity(hyper, task.max_steps),
        "bootstrap": s.bootstrap_time_limit,
        "test_each": test_each,
        "task": TASK_CODES[task.name],
        "observation_size": task.observation_size,
        "num_actions": task.num_actions,
        "kind": kernel.KINDS[kind],
        "rn_type": section.reward_env_type,
        "world_hidden": section.hidden_size,
        "world_layers": max(1, section.hidden_layer),
        "world_act": ACTIVATIONS.index(section.activation_fn),
        "raw_done": section.raw_done,
    }

    def column(name: str) -> np.ndarray:
        return np.broadcast_to(np.asarray(shared[name] if name in shared else hyper[name]), (members,))

    floats = np.stack([column(name) for name in kernel.FLOATS], 1).astype(np.float64)
    ints = np.stack([column(name) for name in kernel.INTS], 1).astype(np.int64)
    agents = nets_of(DDQN, task, hyper)
    weights = initial_weights(agents, keys)
    result = TrainResult.before_training(weights, s.train_episodes, s.test_episodes)
    counts = np.zeros((members, 5), np.int64)
    worlds = np.ascontiguousarray(worlds, dtype=np.float32)
    ukeys = np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)

    def one(i: int) -> None:
        kernel.train(
            worlds[i], floats[i], ints[i], ukeys[i], weights[i, : size(agents[i])],
            result.test_return[i], result.episode_return[i], result.episode_length[i], counts[i],
        )  # fmt: skip

    if threads > 1 and members > 1:
        with ThreadPoolExecutor(threads) as pool:  # the kernel releases the GIL; members take unequal time
            list(pool.map(one, range(members)))
    else:
        for i in range(members):
            one(i)
    result.train_steps, result.updates, result.episodes, result.real_steps = (counts[:, j].copy() for j in range(4))
    result.status = counts[:, 4].astype(np.int8)
    return result
