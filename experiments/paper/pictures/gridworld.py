"""A gridworld and the SE that was evolved for it: where steps lead, what they pay, and the values that agents learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.drawing import TITLE_SIZE, DataFile, Drawing, Need, counted, in_words, panels
from envolve.experiments.paper.common.grids import arrow, empty_map, gridworld, size, triangles, walkable
from envolve.experiments.paper.common.series import learner

TITLE = "transitions and rewards of a gridworld's SE, and the action values that agents learn"
TASKS = ("EmptyRoom22", "EmptyRoom23", "EmptyRoom33")
NEEDS: dict[str, tuple[Need, ...]] = {
    task: (DataFile("gridworld", task, ("gridworld.py", "--task", task)),) for task in TASKS
}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    import matplotlib
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    [only] = data
    task = gridworld(only.task)
    rows, columns = size(task)
    figure, axes = panels(9.0, 3.6 * rows / columns * 2 + 1.2, 2, 2)
    start = walkable(task)
    sentences = []
    for place, (where, words) in enumerate((("task", "the task"), ("SE", "the SE"))):
        ax, values = axes[2 * place], axes[2 * place + 1]
        world, agents = only.series[where], only.series[f"agents, {where}"]
        reward, next_state = np.array(world["reward"], dtype=np.float64), np.array(world["next_state"])
        shown = reward[start]
        norm = Normalize(shown.min(), max(shown.max(), shown.min() + 1e-6))
        colours = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0, 0.88, 256)))  # its yellow is faint
        empty_map(ax, task)
        for state in np.flatnonzero(start):
            for action in range(reward.shape[1]):
                colour = colours(norm(reward[state, action]))
                arrow(ax, task, int(state), int(next_state[state, action]), action, colour)
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=ax, pad=0.02, aspect=18)
        bar.set_label("reward", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        ax.set_title(f"steps of {words}", fontsize=TITLE_SIZE, loc="left")
        q = np.array(agents["q"], dtype=np.float64).mean(axis=0)
        q[~start] = np.nan
        known = q[np.isfinite(q)]
        q_norm = Normalize(known.min(), max(known.max(), known.min() + 1e-6))
        bar = figure.colorbar(triangles(values, task, q, cmap="viridis", norm=q_norm), ax=values, pad=0.02, aspect=18)
        bar.set_label("value", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        values.set_title(f"values of agents from {words}", fontsize=TITLE_SIZE, loc="left")
        sentences.append(
            f"from {words} {in_words(agents['return'])} after {in_words(agents['train_steps'])} steps "
            f"({counted(agents['return'])})"
        )
    agent = learner(only.settings.get("agent"))
    caption = (
        f"{only.task} and the SE that was evolved for it. Left: an arrow leads from a state and action to the next "
        "state (a ring: it stays), its colour is the reward. Right: mean values of "
        f"{agent} agents, the triangle points where the action goes. Test return on the task and "
        "training steps, interquartile means and 95 % intervals: " + "; ".join(sentences) + "."
    )
    return Drawing(figure, caption)
