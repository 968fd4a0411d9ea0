"""The mazes of JaxGCRL (https://github.com/MichalBortkiewicz/JaxGCRL, Apache-2.0; layouts after D4RL).

``#`` is a wall, ``R`` where episodes begin, ``g`` a cell with a goal, ``.`` a free cell. The row's number is x, the
column's y; the centre of a cell is its number times the size of a cell.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

import torch
from torch import Tensor

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
}  # fmt: skip


class Maze:
    """One of MAZES, to scale."""

    def __init__(self, name: str, cell: float) -> None:
        """cell: m, the size of a cell."""
        self.rows, self.cell = MAZES[name], cell
        self.start = self.cells("R")[0]
        self.goals = self.cells("g")  # [cells, 2]
        self.wall = torch.tensor([[c == "#" for c in row] for row in self.rows])  # bool [rows, columns]

    def cells(self, kind: str) -> Tensor:
        """Centres of all cells of a kind, m, float32 [cells, 2]."""
        at: List[Tuple[int, int]] = [
            (i, j) for i, row in enumerate(self.rows) for j, c in enumerate(row) if c == kind
        ]  # fmt: skip
        return torch.tensor(at, dtype=torch.float32) * self.cell

    def to(self, device: torch.device) -> None:
        """Where what is looked up in a step must lie."""
        if self.wall.device != device:
            self.start, self.goals, self.wall = (x.to(device) for x in (self.start, self.goals, self.wall))

    def in_wall(self, x: Tensor, y: Tensor) -> Tensor:
        """bool [..], of positions in m. Outside of the map all is wall."""
        i, j = (x / self.cell).round().long(), (y / self.cell).round().long()
        rows, columns = self.wall.shape
        inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns)
        return ~inside | self.wall[i.clamp(0, rows - 1), j.clamp(0, columns - 1)]
