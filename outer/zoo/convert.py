"""``model.pt`` -> the zoo's file: the same numbers, and all that NumPy and Gymnasium need to make an environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from envolve.envs.outside.build import OWN, is_outside, read_wrappers
from envolve.envs.outside.task import OutsideTask
from envolve.envs.task import Task, make_task
from envolve.envs.worlds.file import WorldFile, WorldFileError
from envolve.envs.worlds.format import world_state_dict
from envolve.worlds.file import WRAPPERS, metadata_of
from envolve.worlds.tensors import tensor_bytes

PREFIX = "gymnasium:"


def zoo_bytes(world: WorldFile) -> bytes:
    """Raises WorldFileError for a world that the zoo has no kind for."""
    bandit = world.kind == "se" and world.section.contextual_bandit
    if not bandit:
        found = "a reward network" if world.kind == "rn" else "an SE with next states"
        words = "it needs the task's own dynamics or resets, which NumPy alone does not have"
        raise WorldFileError(f"{world.path}: found {found}, expected a contextual bandit: {words}")
    task = world.task()
    tensors = {k: v.numpy() for k, v in world_state_dict("se", task, world.section, world.flat).items()}
    if task.action_size and not isinstance(task, OutsideTask):  # the zoo's actions are shares of the largest
        tensors["env.reward_net.0.weight"][:, : task.action_size] *= task.max_action
    mean, scale = units(task)
    tensors.update(observation_mean=mean.astype(np.float32), observation_scale=scale.astype(np.float32))
    about: dict[str, Any] = {
        "kind": "bandit",
        "task": task_id(world.env_name),
        "activation": world.section.activation_fn,
        "observation_shape": shape_of(task),
        "action": action_json(task, world),
    }
    if task.codes:
        about["codes"] = [list(part) for part in task.codes]
    if world.section.stored_contexts:
        about["stored_contexts"] = world.section.stored_contexts
    if isinstance(task, OutsideTask) and task.section["wrappers"]:
        about["wrappers"] = wrappers_of(world, task)
    return tensor_bytes(tensors, metadata_of(about))


def wrappers_of(world: WorldFile, task: OutsideTask) -> list[list[Any]]:
    """The wrappers of the task, for the file. Raises WorldFileError for those that NumPy and Gymnasium alone lack."""
    found = [[text.removeprefix(f"{OWN}.wrappers:"), own] for text, own in read_wrappers(task.section["wrappers"])]
    for name, _ in found:
        if name not in WRAPPERS:
            raise WorldFileError(f"{world.path}: found the wrapper {name}, expected one of {', '.join(WRAPPERS)}")
    return found


def task_id(env_name: str) -> str:
    """``gymnasium:package:Env-v0`` -> ``Env-v0``; of a task of this project Gymnasium's name, if it has one."""
    if not is_outside(env_name):
        return make_task(env_name).gymnasium or env_name
    return env_name.removeprefix(PREFIX).rpartition(":")[2]


def units(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Mean and scale of observations, float64 [F]: an agent sees mean + scale * what the networks draw."""
    if isinstance(task, OutsideTask):
        return task.mean, task.scale
    return np.zeros(task.observation_size), np.ones(task.observation_size)


def shape_of(task: Task) -> list[int]:
    """The shape of an observation."""
    return list(task.observations.shape) if isinstance(task, OutsideTask) else [task.observation_size]


def action_json(task: Task, world: WorldFile) -> dict[str, Any]:
    """The action space, as in ``envs/outside/spaces.py``."""
    if isinstance(task, OutsideTask):
        own: dict[str, Any] = world.config["envs"][world.env_name]["measured"]["action"]
        return own
    if task.num_actions:
        return {"kind": "Discrete", "nvec": [task.num_actions], "start": [0], "shape": [], "dtype": "int64"}
    bound = [float(task.max_action)] * task.action_size
    return {"kind": "Box", "shape": [task.action_size], "dtype": "float32", "low": [-x for x in bound], "high": bound}
