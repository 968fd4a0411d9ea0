"""Point mazes: a point in the ant's mazes, pushed by a force in the plane. State: position m, velocity m/s.

x'' = FORCE a - DRAG x', in steps of 0.05 s: at most 5 m/s, 0.25 m a step. A wall stops what moves into it, axis by
axis, so that a point slides along it and never crosses a corner.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from envolve.envs.goal.mazes import MAZES, Maze
from envolve.envs.goal.task import GOAL_TASKS, GoalTask, Random

FORCE = 10.0  # m/s^2, of an action of 1
DRAG = 2.0  # 1/s
CELL = 4.0  # m
START_NOISE = 0.1  # m, either way
GAP = 1e-3  # m, between a wall and what it stopped


class PointMaze(GoalTask):
    """An episode begins at rest near the cell R; its goal is the centre of any of the cells g."""

    state_numbers = 4
    state_size = 4
    action_size = 2
    goal_indices = (0, 1)
    threshold = 0.5
    maze_name: ClassVar[str]

    def __init__(self) -> None:
        self.maze = Maze(self.maze_name, CELL)

    def start(self, random: Random, members: Tensor) -> Tensor:
        self.maze.to(members.device)
        position = self.maze.start + START_NOISE * (2 * random.uniform(2) - 1)
        return torch.cat((position, torch.zeros_like(position)), 1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        self.maze.to(members.device)
        return self.maze.draw(random)

    def features(self, state: Tensor) -> Tensor:
        return state

    def dynamics(self, state: Tensor, action: Tensor) -> Tensor:
        position, velocity = state.split(2, -1)
        velocity = velocity + self.dt * (FORCE * action - DRAG * velocity)
        x, y = position.unbind(-1)
        vx, vy = velocity.unbind(-1)
        x, vx = self._move(x, vx, y, along_x=True)
        y, vy = self._move(y, vy, x, along_x=False)
        return torch.stack((x, y, vx, vy), -1)

    def _move(self, at: Tensor, speed: Tensor, across: Tensor, along_x: bool) -> tuple:
        """Coordinate and speed after a step; a wall's face stops both."""
        to = at + self.dt * speed
        blocked = self.maze.in_wall(*((to, across) if along_x else (across, to)))
        face = ((at / CELL).round() + 0.5 * torch.sign(speed)) * CELL - GAP * torch.sign(speed)
        return torch.where(blocked, face, to), torch.where(blocked, torch.zeros_like(speed), speed)


def _register(maze: str) -> None:
    cls = type(f"Point_{maze}", (PointMaze,), {"name": f"simple_{maze}", "maze_name": maze})
    GOAL_TASKS.add(f"point_{maze}", GOAL_TASKS.named(cls))  # a descriptive name, and JaxGCRL's


for _maze in MAZES:
    _register(_maze)
