"""Gridworlds of "Learning Synthetic Environments and Reward Networks" (ICLR 2022), finite and deterministic.

Cells: S start, G goal, O hole, # wall, . empty. Actions: 0 right, 1 left, 2 down, 3 up; walls and borders block.
The step into a cell pays that cell's value; a goal or a hole ends the episode. A state is row * columns + column.
"""

from __future__ import annotations

from typing import Any, ClassVar, Tuple

import numpy as np

from envolve.envs.classic.finite import FiniteTask
from envolve.envs.task import register

MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))  # (row, column) of right, left, down, up


class GridWorld(FiniteTask):
    """One layout, tabulated. Goals and holes are absorbing."""

    layout: ClassVar[Tuple[str, ...]] = ()
    step_reward: ClassVar[float] = -0.01
    goal_reward: ClassVar[float] = 1.0
    hole_reward: ClassVar[float] = -1.0
    num_actions = len(MOVES)
    reset_uniforms = 0
    default_solved_reward = 0.8

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.num_states = cls.observation_size = len(cls.layout) * len(cls.layout[0])

    def make_tables(self) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows, columns = len(self.layout), len(self.layout[0])
        cells = "".join(self.layout)
        pays = {"G": self.goal_reward, "O": self.hole_reward}
        self.start_state = cells.index("S")
        next_state = np.empty((len(cells), len(MOVES)), np.int32)
        for cell, kind in enumerate(cells):
            for action, (down, right) in enumerate(MOVES):
                row = min(max(cell // columns + down, 0), rows - 1)
                column = min(max(cell % columns + right, 0), columns - 1)
                target = row * columns + column
                blocked = kind in "GO" or cells[target] == "#"
                next_state[cell, action] = cell if blocked else target
        entered = np.array(list(cells))[next_state]
        reward = np.vectorize(lambda kind: pays.get(kind, self.step_reward))(entered).astype(np.float32)
        return next_state, reward, np.isin(entered, ("G", "O"))


@register
class EmptyRoom22(GridWorld):
    name = "EmptyRoom22"
    default_max_steps = 10
    layout = ("S.", ".G")


@register
class EmptyRoom23(GridWorld):
    name = "EmptyRoom23"
    default_max_steps = 15
    layout = ("S..", "..G")


@register
class EmptyRoom33(GridWorld):
    name = "EmptyRoom33"
    default_max_steps = 20
    layout = ("S..", "...", "..G")


@register
class WallRoom(GridWorld):
    name = "WallRoom"
    default_max_steps = 30
    layout = ("S.#..", "..#..", ".....", "..#..", "..#.G")


@register
class HoleRoom(GridWorld):
    name = "HoleRoom"
    default_max_steps = 30
    layout = ("S.O..", "..O..", ".....", "..O..", "..O.G")


@register
class HoleRoomLarge(GridWorld):
    name = "HoleRoomLarge"
    default_max_steps = 30
    layout = ("S.O.O..", "..O.O..", ".......", "..O.O..", "..O.O.G")


@register
class HoleRoomLargeShifted(GridWorld):
    name = "HoleRoomLargeShifted"
    default_max_steps = 30
    layout = ("S.O....", "..O.O..", "..O.O..", "..O.O..", "....O.G")


@register
class Cliff(GridWorld):
    """Sutton and Barto's cliff, but the episode ends in a hole; the best return is -12."""

    name = "Cliff"
    default_max_steps = 50
    default_solved_reward = -20.0
    step_reward, goal_reward, hole_reward = -1.0, 0.0, -100.0
    layout = ("............", "............", "............", "SOOOOOOOOOOG")
