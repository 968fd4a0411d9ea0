"""Maps of gridworlds: a colour per cell, or a triangle per action of a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from envolve.envs.classic.gridworld import MOVES, GridWorld
from envolve.envs.task import make_task
from envolve.experiments.paper.common.data import DataError
from envolve.experiments.paper.common.drawing import bare
from envolve.outer.reporting.style import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = {"S": "S", "G": "G", "O": "hole"}


def gridworld(name: str) -> GridWorld:
    """Raises DataError."""
    try:
        task = make_task(name)
    except KeyError as e:
        raise DataError(str(e.args[0])) from None
    if not isinstance(task, GridWorld):
        raise DataError(f"found data of {name}, expected a gridworld, which has a map")
    return task


def size(task: GridWorld) -> tuple[int, int]:
    """Rows, columns."""
    return len(task.layout), len(task.layout[0])


def walkable(task: GridWorld) -> np.ndarray:
    """States in which a step can begin: bool [states]."""
    return np.array([kind in "S." for row in task.layout for kind in row])


def empty_map(ax: Axes, task: GridWorld) -> None:
    """Cells (column, row) from (0, 0), rows downwards; start, goal and holes named, walls filled."""
    from matplotlib.patches import Rectangle

    rows, columns = size(task)
    bare(ax)
    ax.set_xlim(-0.02, columns + 0.02)
    ax.set_ylim(rows + 0.02, -0.02)
    for row, line in enumerate(task.layout):
        for column, kind in enumerate(line):
            face = GREY if kind == "#" else "none"
            ax.add_patch(Rectangle((column, row), 1, 1, facecolor=face, edgecolor="#bbbbbb", linewidth=0.5, zorder=2))
            if kind in NAMED:
                box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.7}
                text, at = NAMED[kind], (column + 0.5, row + 0.5)
                ax.text(*at, text, ha="center", va="center", fontsize=7, zorder=4, bbox=box)


def cells(ax: Axes, task: GridWorld, values: np.ndarray, **colours: Any) -> Any:
    """values: [states], NaN is left white -> what a colour bar needs. colours: cmap, vmin, vmax."""
    rows, columns = size(task)
    empty_map(ax, task)
    return ax.pcolormesh(np.arange(columns + 1), np.arange(rows + 1), values.reshape(rows, columns), **colours)


def triangles(ax: Axes, task: GridWorld, values: np.ndarray, **colours: Any) -> Any:
    """values: [states, actions], each in the triangle that points where the action goes; NaN is left white -> what a
    colour bar needs. colours: cmap, norm."""
    from matplotlib.collections import PolyCollection

    _, columns = size(task)
    empty_map(ax, task)
    corners, shown = [], []
    for state, row in enumerate(values):
        y, x = divmod(state, columns)
        centre = np.array([x + 0.5, y + 0.5])
        for (down, right), value in zip(MOVES, row):
            if np.isfinite(value):
                forward, side = np.array([right, down]) / 2, np.array([down, right]) / 2
                corners.append([centre, centre + forward + side, centre + forward - side])
                shown.append(value)
    out = PolyCollection(corners, array=np.array(shown), edgecolors="white", linewidths=0.3, **colours)
    ax.add_collection(out)
    return out


def arrow(ax: Axes, task: GridWorld, start: int, end: int, action: int, colour: Any) -> None:
    """Arrow from one cell to another; if it is the same cell, a small ring at its rim, on the side of the action."""
    _, columns = size(task)
    (y0, x0), (y1, x1), (down, right) = divmod(start, columns), divmod(end, columns), MOVES[action]
    a = np.array([x0 + 0.5 + 0.28 * right, y0 + 0.5 + 0.28 * down])
    if start == end:
        ax.scatter(a[0], a[1], s=26, facecolors="none", edgecolors=[colour], linewidths=1.6, zorder=3)
        return
    b = np.array([x1 + 0.5, y1 + 0.5])
    b = b - (b - a) * 0.22 / max(0.5, float(np.linalg.norm(b - a)))
    look = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (b[0], b[1]), (a[0], a[1]), arrowprops=look)
