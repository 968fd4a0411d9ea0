"""Figure: rewards of reward networks for each action in each state, a triangle per action (figure 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.drawing import TITLE_SIZE, DataFile, Drawing, Need, in_words, panels
from envolve.experiments.paper.common.grids import gridworld, size, triangles, walkable
from envolve.experiments.paper.common.series import style

TITLE = "figure 10: the rewards of reward networks for each state and action"
NEEDS: dict[str, tuple[Need, ...]] = {"Cliff": (DataFile("learned_reward", "Cliff", ("learned_reward.py",)),)}
LOW = -50.0  # rewards up to here are left out on the right, as published


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    from matplotlib.colors import Normalize

    [only] = data
    task = gridworld(only.task)
    rows, columns = size(task)
    down = len(only.series)
    figure, axes = panels(10.4, (4.3 * rows / columns + 0.4) * down + 0.6, down, 2)
    sentences = []
    for place, (label, q) in enumerate(only.series.items()):
        every = np.array(q["reward"], dtype=np.float64)
        every[:, ~walkable(task)] = np.nan
        mean = every.mean(axis=0)
        name = "the task's own" if label == "task" else style(label, place).name
        simple = np.where(mean > LOW, mean, np.nan)
        for ax, values, title in ((axes[2 * place], mean, name), (axes[2 * place + 1], simple, f"above {LOW:g}")):
            shown = values[np.isfinite(values)]
            low, high = (shown.min(), shown.max()) if shown.size else (0.0, 1.0)
            norm = Normalize(low, high if high > low else low + 1)
            bar = figure.colorbar(triangles(ax, task, values, cmap="viridis", norm=norm), ax=ax, pad=0.01, aspect=14)
            bar.set_label("reward", fontsize=8)
            bar.ax.tick_params(labelsize=7)
            ax.set_title(title, fontsize=TITLE_SIZE, loc="left")
        if label != "task":
            each = np.nanmean(np.where(every > LOW, every, np.nan), axis=(1, 2))
            sentences.append(f"{name} {in_words(each.tolist())} ({len(each)} RNs)")
    caption = (
        f"Reward for each action in each state of {only.task}, mean over reward networks (RNs); the triangle points "
        f"where the action goes. Right: without rewards up to {LOW:g}. Mean reward of an RN above that, interquartile "
        "mean and 95 % interval over RNs: " + "; ".join(sentences) + "."
    )
    return Drawing(figure, caption)
