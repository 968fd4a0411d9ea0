"""A DDQN population through the compiled kernel: hyperparameters and worlds in, ``TrainResult`` out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Optional

import numpy as np
import torch

from agents.hyper import Hyper
from agents.kernels import ddqn as kernel
from agents.kernels.tasks import TASK_CODES
from agents.result import TrainResult
from envs import rng
from envs.networks import ACTIVATIONS, MLPShape, init_flat
from envs.section import EnvSection
from envs.task import Task


def why_not(task: Task, hyper: Hyper) -> Optional[str]:
    """The reason why the kernel cannot train this population, or None if it can."""
    if task.name not in TASK_CODES:
        return f"the task {task.name} has no compiled twin"
    if hyper.section.activation_fn == "prelu":  # type: ignore[attr-defined]
        return "an agent with PReLU learns its slope, which the kernel does not"
    return None


def capacity(hyper: Hyper, max_steps: int) -> np.ndarray:
    """Rows of each member's replay buffer [P]: rb_size, or all transitions of the longest training if that is less."""
    decisions = hyper.section.train_episodes * -(-max_steps // hyper.section.same_action_num)
    budget = np.where(hyper["train_steps"] > 0, hyper["train_steps"], decisions)
    return np.minimum(np.minimum(budget, decisions), hyper.section.rb_size)


def initial_weights(task: Task, hyper: Hyper, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fresh Q networks: float32 [P, D_max] zero-padded, and each member's own size [P]."""
    activation = hyper.section.activation_fn  # type: ignore[attr-defined]
    pairs = list(zip(hyper["hidden_size"].tolist(), hyper["hidden_layer"].tolist()))
    shapes = [MLPShape(task.observation_size, task.num_actions, h, layers, activation) for h, layers in pairs]
    sizes = np.array([shape.size for shape in shapes])
    weights = np.zeros((len(keys), int(sizes.max())), np.float32)
    streams = rng.fold(torch.as_tensor(keys), rng.INIT)
    for shape in set(shapes):
        rows = [i for i, s in enumerate(shapes) if s == shape]
        weights[rows, : shape.size] = init_flat(shape, streams[rows]).numpy()
    return weights, sizes


def train_population(
    task: Task,
    kind: str,
    section: EnvSection,
    worlds: np.ndarray,
    hyper: Hyper,
    keys: np.ndarray,
    test_each: bool,
    threads: int = 1,
) -> TrainResult:
    """worlds: float32 [P, D] (any width for kind "real"); keys: int64 [P]. Semantics: ``agents/ddqn.py``."""
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
    weights, sizes = initial_weights(task, hyper, keys)
    result = TrainResult(
        test_return=np.full((members, s.test_episodes), np.nan),
        train_steps=np.zeros(members, np.int64),
        updates=np.zeros(members, np.int64),
        episodes=np.zeros(members, np.int64),
        real_steps=np.zeros(members, np.int64),
        episode_return=np.full((members, s.train_episodes), np.nan, np.float32),
        episode_length=np.zeros((members, s.train_episodes), np.int32),
        status=np.zeros(members, np.int8),
        weights=weights,
    )
    counts = np.zeros((members, 5), np.int64)
    worlds = np.ascontiguousarray(worlds, dtype=np.float32)
    ukeys = np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)

    def one(i: int) -> None:
        kernel.train(
            worlds[i], floats[i], ints[i], ukeys[i], weights[i, : sizes[i]],
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
