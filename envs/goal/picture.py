"""Pictures of goal tasks: the goal as a green ball with the radius that counts as near. MuJoCo renders off screen;
tasks in plain torch have a look-alike model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from envolve.envs.goal.episodes import Episodes
from envolve.envs.goal.point import PointMaze
from envolve.envs.goal.reacher import Reacher
from envolve.envs.goal.simulated import SimulatedEpisodes
from envolve.envs.goal.task import GoalTask
from envolve.envs.sim.simulator import MODELS, SimulatorError

GREEN = (0.1, 0.75, 0.1, 0.35)
POINT_RADIUS = 0.4  # m
WALL_HEIGHT = 1.0  # m, of point mazes, which have none
LEAST_DISTANCE = 14  # times what counts as near: the camera's, from the middle between robot and goal


class Scenery:
    """Renderer for the first environment of some episodes."""

    def __init__(self, episodes: Episodes) -> None:
        """Raises SimulatorError, ImportError."""
        import mujoco

        from envolve.envs.sim.mujoco_model import Camera

        self.episodes, self.camera = episodes, Camera()
        self.model = model_of(episodes)
        self.data = mujoco.MjData(self.model)

    def picture(self, width: int, height: int) -> np.ndarray:
        """Picture of the current state: uint8 [height, width, 3]. Raises SimulatorError."""
        from envolve.envs.sim.mujoco_model import Mark, View

        e, task = self.episodes, self.episodes.task
        self.data.qpos[:] = coordinates(e)
        goal, robot = (in_space(x) for x in (e.goal[0, 0], task.achieved(e.features)[0, 0]))
        distance = max(LEAST_DISTANCE * task.threshold, 1.6 * float(np.linalg.norm(goal - robot)))
        view = View(
            (goal + robot) / 2,
            distance,
            -60.0 if hasattr(task, "maze") else -35.0,
            (Mark(goal, task.threshold, GREEN),),
        )
        return self.camera.picture(self.model, self.data, width, height, view)

    def close(self) -> None:
        self.camera.close()


def in_space(x: Tensor) -> np.ndarray:
    """Position of a goal, m: of 1 to 3 coordinates as it is, of more the first position."""
    return np.pad(x[:3].cpu().double().numpy(), (0, max(0, 3 - len(x))))


def coordinates(e: Episodes) -> np.ndarray:
    """MuJoCo coordinates of the first environment."""
    if isinstance(e, SimulatedEpisodes):
        sim: Any = e.sim
        return np.asarray(sim.qpos[0])
    position = e.state[0, 0, :2]
    if isinstance(e.task, Reacher):  # the model has a target, too
        position = torch.cat((position, e.goal[0, 0, :2]))
    return np.asarray(position.cpu())


def model_of(e: Episodes) -> Any:
    """Model for a picture of the task, with sky, floor and shadows. Raises SimulatorError if there is none."""
    import mujoco

    from envolve.envs.sim.stage import dress, lowest, staged

    task: GoalTask = e.task
    square = 1.0 if LEAST_DISTANCE * task.threshold > 3 else 0.1
    if isinstance(e, SimulatedEpisodes):
        sim: Any = e.sim
        rest = mujoco.MjData(sim.model)
        mujoco.mj_forward(sim.model, rest)
        return staged(MODELS / e.task.model, e.task.scene(), lowest(sim.model, rest), square)
    if isinstance(task, Reacher):
        return staged(MODELS / "reacher.xml", None, 0.0, square)
    if not isinstance(task, PointMaze):
        raise SimulatorError(f"there is no model of {task.name}")
    spec = mujoco.MjSpec()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[60, 60, 1], rgba=[0.8, 0.85, 0.8, 1])
    task.maze.build(spec, WALL_HEIGHT)
    point = spec.worldbody.add_body(name="point", pos=[0, 0, POINT_RADIUS])
    point.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[POINT_RADIUS, 0, 0], rgba=[0.2, 0.3, 0.9, 1])
    for name, axis in (("x", [1, 0, 0]), ("y", [0, 1, 0])):
        point.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
    dress(spec, 0.0)
    return spec.compile()
