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


class Drawing:
    """Pictures of one task, of any size. Raises VideoError for a task that it cannot draw."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.env: Any = None
        if isinstance(task, GridWorld):
            return
        if plain_name(task.name) not in STATES or (isinstance(task, OutsideTask) and task.section["wrappers"]):
            known = ", ".join(STATES)
            raise VideoError(f"found {task.name}, expected a task that can be drawn: {known}, or a gridworld")
        name, self.state = STATES[plain_name(task.name)]
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
            raise VideoError("Gymnasium's renderers need pygame: pip install 'envolve[baselines]'") from e

    def picture(self, observation: np.ndarray, action: np.ndarray | int, width: int) -> np.ndarray:
        """observation: float [F]; action: what the agent does there -> uint8 [height, width, 3]."""
        from PIL import Image

        found = self._cells(observation) if self.env is None else self._rendered(observation, action)
        height = round(width * found.shape[0] / found.shape[1])
        return np.asarray(Image.fromarray(found).resize((width, height), Image.Resampling.LANCZOS))

    def _rendered(self, observation: np.ndarray, action: np.ndarray | int) -> np.ndarray:
        env = self.env.unwrapped
        if isinstance(self.task, OutsideTask):  # agents see such observations centred and scaled
            observation = observation * self.task.scale + self.task.mean
        state = np.asarray(self.state(np.nan_to_num(observation.astype(float))), dtype=float)
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
        if self.env is not None:
            self.env.close()
