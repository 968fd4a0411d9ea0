"""The mazes of JaxGCRL (https://github.com/MichalBortkiewicz/JaxGCRL, Apache-2.0; layouts after D4RL).

``#`` is a wall, ``R`` where episodes begin, ``g`` a cell with a goal, ``.`` a free cell. The row's number is x, the
column's y; the centre of a cell is its number, from the maze's origin on, times the size of a cell.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple, Union

import torch
from torch import Tensor

from envolve.envs.goal.task import Random

MAZES: Dict[str, Tuple[str, ...]] = {
    "u_maze": (
        "#####",
        "#Rgg#",
        "###g#",
        "#ggg#",
        "#####",
    ),
    "big_maze": (
        "########",
        "#Rg##gg#",
        "#gg#ggg#",
        "##ggg###",
        "#gg#ggg#",
        "#g#gg#g#",
        "#ggg#gg#",
        "########",
    ),
    "hardest_maze": (
        "############",
        "#Rggg#ggggg#",
        "#g##g#g#g#g#",
        "#gggggg#ggg#",
        "#g####g###g#",
        "#gg#g#ggggg#",
        "##g#g#g#g###",
        "#gg#ggg#ggg#",
        "############",
    ),
    "u_maze_eval": (
        "#####",
        "#R..#",
        "###.#",
        "#ggg#",
        "#####",
    ),
    "big_maze_eval": (
        "########",
        "#R.##gg#",
        "#..#.gg#",
        "##...###",
        "#..#...#",
        "#.#g.#g#",
        "#.gg#gg#",
        "########",
    ),
}


class Maze:
    """Map to scale."""

    def __init__(self, maze: Union[str, Tuple[str, ...]], cell: float, origin: Tuple[int, int] = (0, 0)) -> None:
        """maze: its name, or rows as those of MAZES; cell: m, the size of a cell; origin: row and column of the cell
        whose centre is the world's."""
        self.rows, self.cell, self.origin = MAZES[maze] if isinstance(maze, str) else maze, cell, origin
        self.start = self.cells("R")[0]
        self.goals = self.cells("g")  # [cells, 2]
        self.wall = torch.tensor([[c == "#" for c in row] for row in self.rows])  # bool [rows, columns]

    def cells(self, kind: str) -> Tensor:
        """Centres of all cells of a kind, m, float32 [cells, 2]."""
        return self.centres([(i, j) for i, row in enumerate(self.rows) for j, c in enumerate(row) if c == kind])

    @property
    def free(self) -> List[Tuple[int, int]]:
        """Row and column of every cell that is no wall."""
        return [(i, j) for i, row in enumerate(self.rows) for j, c in enumerate(row) if c != "#"]

    def centres(self, at: List[Tuple[int, int]]) -> Tensor:
        """Centres of the cells in these rows and columns, m, float32 [cells, 2]."""
        return (torch.tensor(at, dtype=torch.float32) - torch.tensor(self.origin)) * self.cell

    def to(self, device: torch.device) -> None:
        """Device for tensors that are read in a step."""
        if self.wall.device != device:
            self.start, self.goals, self.wall = (x.to(device) for x in (self.start, self.goals, self.wall))

    def draw(self, random: Random) -> Tensor:
        """A goal cell for each of K rows, m, [K, 2], all equally likely."""
        cell = (random.uniform(1)[:, 0] * len(self.goals)).long()  # u < 1 - 2^-24, so it is below their number
        return self.goals[cell]

    def boxes(self) -> List[Tuple[int, int, int, int]]:
        """Walls as few rectangles: first row, first column, one past the last row and column."""
        left, out = {(i, j) for i, row in enumerate(self.rows) for j, c in enumerate(row) if c == "#"}, []
        while left:
            i, j = min(left)
            right, below = j, i
            while (i, right) in left:
                right += 1
            while all((below, k) in left for k in range(j, right)):
                below += 1
            left -= {(r, k) for r in range(i, below) for k in range(j, right)}
            out.append((i, j, below, right))
        return out

    def build(self, spec: Any, height: float) -> None:
        """Adds the walls, height m high, to a MuJoCo model (mujoco.MjSpec). Robots touch them; floors and walls do not
        touch each other."""
        import mujoco

        for number, (i, j, below, right) in enumerate(self.boxes()):
            x, y = ((a + b - 1) / 2 - o for a, b, o in ((i, below, self.origin[0]), (j, right, self.origin[1])))
            spec.worldbody.add_geom(
                name=f"wall{number}",
                type=mujoco.mjtGeom.mjGEOM_BOX,
                contype=0,
                conaffinity=1,
                pos=[x * self.cell, y * self.cell, height / 2],
                rgba=[0.7, 0.5, 0.3, 1.0],
                size=[(below - i) * self.cell / 2, (right - j) * self.cell / 2, height / 2],
            )

    def in_wall(self, x: Tensor, y: Tensor) -> Tensor:
        """True for positions in m that lie in a wall, bool [..]. Everything outside of the map is wall."""
        i, j = ((at / self.cell).round().long() + o for at, o in zip((x, y), self.origin))
        rows, columns = self.wall.shape
        inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns)
        return ~inside | self.wall[i.clamp(0, rows - 1), j.clamp(0, columns - 1)]
