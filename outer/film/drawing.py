"""Pictures of tasks from what an agent observes: Gymnasium's own renderers of the classic tasks, and cells of a grid.

A synthetic environment has no state but what it shows its agent, so a picture is drawn from the observation, of the
task and of the world alike. What a world makes up may lie outside of what the task allows: it is cut at the edge.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Callable

import numpy as np

from envolve.envs.classic.gridworld import GridWorld
from envolve.envs.outside.task import OutsideTask
from envolve.envs.task import Task
from envolve.outer.film.bodies import ROBOTS, Lander, Robot, Walker
from envolve.outer.reporting.names import plain_name
from envolve.outer.shapers.video import VideoError

CELL = 56  # px
COLOURS = {"S": (214, 224, 236), "G": (110, 180, 110), "O": (70, 84, 104), "#": (150, 156, 164), ".": (246, 247, 249)}
LINE, AGENT = (202, 207, 214), (213, 94, 0)
STATES: dict[str, tuple[str, Callable[[np.ndarray], list[float]]]] = {  # task -> Gymnasium's id, its state
    "CartPole": ("CartPole-v1", lambda o: [float(np.clip(o[0], -2.4, 2.4)), o[1], o[2], o[3]]),
    "MountainCar": ("MountainCar-v0", lambda o: [float(np.clip(o[0], -1.2, 0.6)), o[1]]),
    "MountainCarContinuous": ("MountainCarContinuous-v0", lambda o: [float(np.clip(o[0], -1.2, 0.6)), o[1]]),
    "Pendulum": ("Pendulum-v1", lambda o: [float(np.arctan2(o[1], o[0])), o[2]]),
    "Acrobot": ("Acrobot-v1", lambda o: [float(np.arctan2(o[1], o[0])), float(np.arctan2(o[3], o[2])), o[4], o[5]]),
}
BOX2D: dict[str, tuple[str, type[Lander] | type[Walker]]] = {
    "LunarLander": ("LunarLander-v3", Lander),
    "LunarLanderContinuous": ("LunarLander-v3", Lander),
    "BipedalWalker": ("BipedalWalker-v3", Walker),
}


STILL = np.zeros(2)


def check_drawn(task: Task) -> None:
    """Raises VideoError for a task that has no drawing, before any agent is trained or any environment made."""
    wrapped = isinstance(task, OutsideTask) and task.section["wrappers"]
    if isinstance(task, GridWorld) or (plain_name(task.name) in (*STATES, *BOX2D, *ROBOTS) and not wrapped):
        return
    known = ", ".join([*STATES, "LunarLander", "BipedalWalker", *ROBOTS])
    words = f"found {task.name}, expected a task that can be drawn: {known}, or a gridworld"
    if isinstance(task, OutsideTask):
        words += "; other environments from outside, and those with wrappers, have no drawing"
    raise VideoError(words)


class Drawing:
    """Pictures of one task, of any size. Raises VideoError for a task that it cannot draw."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.env: Any = None
        self.body: Lander | Walker | None = None
        self.robot: Robot | None = None
        check_drawn(task)
        if isinstance(task, GridWorld):
            return
        plain = plain_name(task.name)
        if plain in ROBOTS:
            self.robot = Robot(plain)
            return
        self.state: Callable[[np.ndarray], list[float]] | None = None
        if plain in BOX2D:
            name = BOX2D[plain][0]
        else:
            name, self.state = STATES[plain]
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        import gymnasium

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.env = gymnasium.make(name, render_mode="rgb_array")
                self.env.reset(seed=0)
                self.env.render()
        except gymnasium.error.DependencyNotInstalled as e:
            extra = "box2d" if plain in BOX2D else "baselines"
            raise VideoError(f"Gymnasium's renderer of {plain} needs pip install 'envolve[{extra},video]'") from e
        self.body = BOX2D[plain][1](self.env.unwrapped) if plain in BOX2D else None

    def moved(self, observations: np.ndarray) -> np.ndarray:
        """observations: float [T, F] -> m that it has gone by each of them, along x and y, unless that is observed
        [T, 2]."""
        mover = self.robot or self.body
        return np.zeros((len(observations), 2)) if mover is None else mover.moved(self._natural(observations))

    def picture(
        self, observation: np.ndarray, action: np.ndarray | int, width: int, moved: np.ndarray = STILL
    ) -> np.ndarray:
        """observation: float [F]; action: what the agent does there; moved: see there, [2] -> uint8 [height, width,
        3]."""
        from PIL import Image

        if self.robot is not None:
            return self.robot.picture(self._natural(observation), moved, width, round(width * 2 / 3))
        found = self._cells(observation) if self.env is None else self._rendered(observation, action, moved)
        height = round(width * found.shape[0] / found.shape[1])
        return np.asarray(Image.fromarray(found).resize((width, height), Image.Resampling.LANCZOS))

    def _natural(self, observation: np.ndarray) -> np.ndarray:
        """In the task's own units: agents see the observations of Gymnasium's tasks centred and scaled."""
        if isinstance(self.task, OutsideTask):
            observation = observation * np.asarray(self.task.scale) + np.asarray(self.task.mean)
        return np.nan_to_num(np.asarray(observation, dtype=float))

    def _rendered(self, observation: np.ndarray, action: np.ndarray | int, moved: np.ndarray) -> np.ndarray:
        env, observation = self.env.unwrapped, self._natural(observation)
        if self.body is not None:
            self.body.place(observation, moved)
            return np.asarray(env.render())
        assert self.state is not None
        state = np.asarray(self.state(observation), dtype=float)
        env.state = state
        if plain_name(self.task.name) == "Pendulum":  # draws the torque as an arrow
            env.last_u = float(np.clip(np.ravel(action)[0], -2, 2))
        return np.asarray(env.render())

    def _cells(self, observation: np.ndarray) -> np.ndarray:
        from PIL import Image, ImageDraw

        layout = self.task.layout  # type: ignore[attr-defined]
        rows, columns = len(layout), len(layout[0])
        image = Image.new("RGB", (columns * CELL + 1, rows * CELL + 1), LINE)
        pen = ImageDraw.Draw(image)
        for row, line in enumerate(layout):
            for column, kind in enumerate(line):
                x, y = column * CELL, row * CELL
                pen.rectangle((x + 1, y + 1, x + CELL - 1, y + CELL - 1), fill=COLOURS.get(kind, COLOURS["."]))
                if kind in "SG":
                    pen.text((x + 5, y + 4), {"S": "start", "G": "goal"}[kind], fill=(60, 66, 74))
        row, column = divmod(int(np.argmax(observation)), columns)
        x, y = column * CELL, row * CELL
        pen.ellipse((x + 14, y + 14, x + CELL - 14, y + CELL - 14), fill=AGENT)
        return np.asarray(image)

    def close(self) -> None:
        for made in (self.env, self.robot):
            if made is not None:
                made.close()
