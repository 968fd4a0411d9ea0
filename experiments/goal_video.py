"""A film of a goal-conditioned policy: evaluation episodes one after the other, the goal as a green ball, as large as
what counts as near. MuJoCo draws all of it off screen; for tasks in plain torch, a model that looks like them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.crl_train import GoalLearner
from envs import rng
from envs.goal.engines import make_episodes
from envs.goal.episodes import Episodes
from envs.goal.point import PointMaze
from envs.goal.reacher import Reacher
from envs.goal.simulated import SimulatedEpisodes
from envs.goal.task import GoalTask, make_goal_task
from envs.sim.opengl import choose_opengl
from envs.sim.simulator import MODELS, SimulatorError
from experiments.goal_arguments import GoalPlan
from experiments.goal_run import GoalRun
from experiments.shaper_video import HEIGHT, WIDTH, FilmWriter, VideoError, writable_format
from outer.yaml_lines import ConfigError

SECONDS = 20.0  # of the film, in the robot's time
GREEN = (0.1, 0.8, 0.1, 0.4)
POINT_RADIUS = 0.4  # m
WALL_HEIGHT = 1.0  # m, of point mazes, which have none
LEAST_DISTANCE = 14  # times what counts as near: the camera's, from the middle between robot and goal


def film_path(given: str | None) -> Path | None:
    """What --video comes to: None where it is not given. Raises ConfigError, VideoError."""
    if given is None:
        return None
    path = Path(given) if given else None
    if path is not None and path.suffix.lower() not in (".mp4", ".gif"):
        raise ConfigError([f"--video: found {given!r}, expected a name that ends in .mp4 or .gif"])
    suffix = writable_format(path)
    return Path(f"video{suffix}") if path is None else path.absolute()


def check_film(plan: GoalPlan, film: Path | None) -> None:
    """Before anything is trained: a first picture. Raises VideoError where there can be none."""
    if film is not None:
        stage = Stage(plan, 0)
        stage.picture()
        stage.close()


def film_of(run: GoalRun, path: Path) -> str:
    """The film of the member that did best at the last evaluation -> a line of the summary. Raises VideoError."""
    scores = [s for s in run.scores[-run.plan.run.population :] if math.isfinite(s.success)]
    member = max(scores, key=lambda s: (s.success, s.near)).member
    episodes = film_member(run.plan, run.training.learner, member, path)
    return f"{path}  member {member} in {episodes} evaluation episodes\n"


def film_member(plan: GoalPlan, learner: GoalLearner, member: int, path: Path) -> int:
    """Film a member's policy -> how many evaluation episodes that shows. Raises VideoError."""
    stage = Stage(plan, member)
    e = stage.episodes
    seen, wanted = (torch.zeros(learner.P, 1, x.shape[2], device=e.device) for x in (e.features, e.goal))
    try:
        with FilmWriter(path, stage.dt) as writer:
            for t in range(math.ceil(SECONDS / stage.dt)):
                writer.add(t, stage.picture)
                seen[member], wanted[member] = e.features[0], e.goal[0]
                e.step(learner.greedy(seen, wanted)[member : member + 1])
    except OSError as error:
        raise VideoError(f"{path}: {error.strerror or error}") from error
    finally:
        stage.close()
    return int(e.episode.item()) + 1


class Stage:
    """One environment of the evaluation's task, and MuJoCo's picture of it."""

    def __init__(self, plan: GoalPlan, member: int) -> None:
        """Raises VideoError."""
        choose_opengl()
        run = plan.run
        self.task = make_goal_task(run.eval_env or run.env_name)
        key = rng.fold(torch.tensor([run.seed + member], device=run.device), rng.TEST)
        try:  # MuJoCo has every model, and what it draws does not depend on who simulated the training
            self.episodes: Episodes = make_episodes(
                self.task, key, 1, episode_length=run.episode_length, action_repeat=run.action_repeat
            )
            import mujoco

            from envs.sim.mujoco_model import Camera
        except (SimulatorError, ImportError) as e:
            raise VideoError(f"--video: no simulator that renders: {e}") from e
        self.dt = self.task.dt * run.action_repeat  # s, of a decision
        self.camera = Camera()
        self.model = model_of(self.episodes)
        self.data = mujoco.MjData(self.model)

    def picture(self) -> np.ndarray:
        """uint8 [HEIGHT, WIDTH, 3]. Raises VideoError."""
        from envs.sim.mujoco_model import Mark, View

        task, e = self.task, self.episodes
        self.data.qpos[:] = coordinates(e)
        goal, robot = (in_space(x) for x in (e.goal[0, 0], task.achieved(e.features)[0, 0]))
        distance = max(LEAST_DISTANCE * task.threshold, 1.6 * float(np.linalg.norm(goal - robot)))
        view = View((goal + robot) / 2, distance, -60.0 if hasattr(task, "maze") else -35.0,
                    (Mark(goal, task.threshold, GREEN),))  # fmt: skip
        try:
            return self.camera.picture(self.model, self.data, WIDTH, HEIGHT, view)
        except SimulatorError as error:
            raise VideoError(f"--video: {error}") from error

    def close(self) -> None:
        self.camera.close()
        if isinstance(self.episodes, SimulatedEpisodes):
            self.episodes.sim.close()


def in_space(x: Tensor) -> np.ndarray:
    """A goal of 1 to 3 coordinates as a position, m; of more, the first of its positions."""
    return np.pad(x[:3].cpu().double().numpy(), (0, max(0, 3 - len(x))))


def coordinates(e: Episodes) -> np.ndarray:
    """MuJoCo's, of the first environment."""
    if isinstance(e, SimulatedEpisodes):
        sim: Any = e.sim
        return np.asarray(sim.qpos[0])
    position = e.state[0, 0, :2]
    if isinstance(e.task, Reacher):  # the model has a target, too
        position = torch.cat((position, e.goal[0, 0, :2]))
    return np.asarray(position.cpu())


def model_of(e: Episodes) -> Any:
    """Raises VideoError for a task that nobody has drawn."""
    import mujoco

    from envs.sim.mujoco_model import load_model

    task: GoalTask = e.task
    if isinstance(e, SimulatedEpisodes):
        sim: Any = e.sim
        return sim.model
    if isinstance(task, Reacher):
        return load_model(MODELS / "reacher.xml", False)
    if not isinstance(task, PointMaze):
        raise VideoError(f"--video: there is no model of {task.name}")
    spec = mujoco.MjSpec()
    spec.visual.headlight.ambient = [0.5, 0.5, 0.5]
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[60, 60, 1], rgba=[0.8, 0.85, 0.8, 1])
    task.maze.build(spec, WALL_HEIGHT)
    point = spec.worldbody.add_body(name="point", pos=[0, 0, POINT_RADIUS])
    point.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[POINT_RADIUS, 0, 0], rgba=[0.2, 0.3, 0.9, 1])
    for name, axis in (("x", [1, 0, 0]), ("y", [0, 1, 0])):
        point.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
    return spec.compile()
