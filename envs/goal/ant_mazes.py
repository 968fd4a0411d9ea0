"""Ant mazes: the ant finds its way between walls. Mazes of ``mazes.py``, 4 m a cell, walls 2 m high, as in JaxGCRL
(https://arxiv.org/abs/2408.11052; there the walls are a box for each cell, here the same room in fewer boxes)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from envolve.envs.goal.mazes import MAZES, Maze
from envolve.envs.goal.task import GOAL_TASKS, Random
from envolve.envs.goal.walkers import Ant, spring_ant
from envolve.envs.sim.simulator import Scene

CELL = 4.0  # m
HEIGHT = 2.0  # m


class AntMaze(Ant):
    """Ant in a maze. Episodes begin in the middle of the cell R, otherwise as for the ant; the goal is the centre of a
    random cell g."""

    maze_name: ClassVar[str]

    def __init__(self) -> None:
        self.maze = Maze(self.maze_name, CELL)

    def scene(self) -> Scene:
        def build(spec: Any) -> None:
            spring_ant(spec)
            self.maze.build(spec, HEIGHT)

        return build

    def start(self, random: Random, members: Tensor) -> Tensor:
        self.maze.to(members.device)
        start = super().start(random, members)
        return torch.cat((self.maze.start.expand(len(start), 2), start[:, 2:]), 1)

    def goal(self, random: Random, start: Tensor, members: Tensor) -> Tensor:
        self.maze.to(members.device)
        return self.maze.draw(random)


for _maze in MAZES:
    GOAL_TASKS.named(type(f"Ant_{_maze}", (AntMaze,), {"name": f"ant_{_maze}", "maze_name": _maze}))
