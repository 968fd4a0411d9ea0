"""A goal task's model, stepped by nothing but MuJoCo."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import torch

from envolve.envs.goal.simulated import SimulatedEpisodes, SimulatedTask
from envolve.envs.sim.mujoco_model import load_model
from envolve.envs.sim.simulator import MODELS


def model_of(task: SimulatedTask) -> Any:
    return load_model(MODELS / task.model, False, task.scene())


def follow(episodes: SimulatedEpisodes, actions: torch.Tensor, copies: list[Any] | None = None) -> list[Any]:
    """Steps the episodes and a copy of each of their environments -> the copies' MjData. actions: [T, P, N, A]. Every
    coordinate is the same to the bit. No episode begins anew.
    copies: those of a call before, to go on with."""
    task, sim = episodes.task, episodes.sim
    model = model_of(task)
    new = copies is None
    copies = [mujoco.MjData(model) for _ in range(sim.num_envs)] if copies is None else copies
    for i, data in enumerate(copies if new else []):
        data.qpos[:], data.qvel[:] = sim.qpos[i], sim.qvel[i]  # type: ignore[attr-defined]
        mujoco.mj_forward(model, data)
    limit, gear = model.actuator_ctrlrange[:, 1], model.actuator_gear[:, 0]
    told = not model.actuator_ctrllimited.any()  # controls are what ``effort`` says, in place of torques
    assert told or ((model.actuator_ctrlrange[:, 0] == -limit).all() and (gear > 0).all())
    for action in actions:
        episodes.advance(action)
        for i, data in enumerate(copies):
            row = action.view(sim.num_envs, -1)[i]
            data.ctrl[:] = task.effort(row[None], sim)[0] if told else row.double().numpy() * (limit * gear) / gear
            mujoco.mj_step(model, data, task.substeps)
            np.testing.assert_array_equal(sim.qpos[i].numpy(), data.qpos)  # type: ignore[attr-defined]
            np.testing.assert_array_equal(sim.qvel[i].numpy(), data.qvel)  # type: ignore[attr-defined]
    return copies
