"""Pictures and names for the states of a dump, from the task's own model. Needs mjlab."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import numpy as np

from envolve.envs.managers.environment import quiet
from envolve.envs.managers.guard import Dump
from envolve.envs.managers.library import library_of
from envolve.envs.managers.mjlab import MJLAB
from envolve.envs.sim.simulator import SimulatorError


def model_of(task: str) -> Tuple[Any, Any]:
    """MuJoCo's model of one environment, and the task's configuration. Raises SimulatorError."""
    if library_of(task) is not MJLAB:
        raise SimulatorError(f"the model of {task} is not read, only those of mjlab's tasks")
    cfg = MJLAB.configuration(task, 1)
    from mjlab.scene import Scene

    with quiet():
        model = Scene(cfg.scene, device="cpu").spec.compile()
    cfg.sim.mujoco.apply(model)
    return model, cfg


def joint_names(task: str) -> List[str]:
    """The joint of every velocity. Raises SimulatorError."""
    model, _ = model_of(task)
    return [model.joint(int(j)).name for j in model.dof_jntid]


def pictures(dump: Dump, width: int, height: int) -> Tuple[Callable[[int], Any], float]:
    """A function of k that draws state k, uint8 [height, width, 3], and seconds between states. Raises
    SimulatorError."""
    import mujoco

    model, cfg = model_of(dump.task)
    if model.nq != dump.qpos.shape[1] or model.nv != dump.qvel.shape[1]:
        raise SimulatorError(f"{dump.task} has {model.nq} positions here, the file {dump.qpos.shape[1]}")
    data = mujoco.MjData(model)
    try:
        renderer = mujoco.Renderer(model, height, width)
    except Exception as e:  # OpenGL fails in many ways
        raise SimulatorError(f"no off-screen OpenGL here: {type(e).__name__}: {e}") from e

    def draw(k: int) -> Any:
        data.qpos[:] = np.clip(np.nan_to_num(dump.qpos[k]), -1e3, 1e3)
        mujoco.mj_forward(model, data)
        renderer.update_scene(data)
        return renderer.render()

    return draw, cfg.sim.mujoco.timestep * cfg.decimation
