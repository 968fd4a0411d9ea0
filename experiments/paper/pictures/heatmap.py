"""Figure: visits of each state in a test on the task, by agents trained in reward networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.drawing import TITLE_SIZE, DataFile, Drawing, Need, counted, in_words, panels
from envolve.experiments.paper.common.grids import cells, gridworld, size
from envolve.experiments.paper.common.series import learner, style

TITLE = "state visits of SARSA agents that were trained in reward networks and on the task"
NEEDS: dict[str, tuple[Need, ...]] = {"Cliff": (DataFile("heatmap", "Cliff", ("heatmap.py",)),)}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    from matplotlib.colors import PowerNorm

    [only] = data
    task = gridworld(only.task)
    rows, columns = size(task)
    across = 1 if len(only.series) < 2 else 2
    down = -(-len(only.series) // across)
    figure, axes = panels(4.6 * across + 0.5, (4.4 * rows / columns + 0.35) * down + 0.7, down, across)
    means = {label: np.mean(q["visits"], axis=0) for label, q in only.series.items()}
    most = max((m.max() for m in means.values()), default=1.0)
    mesh, sentences = None, []
    for place, (ax, (label, q)) in enumerate(zip(axes, only.series.items())):
        name = style(label, place).name
        mesh = cells(ax, task, means[label], cmap="Blues", norm=PowerNorm(0.5, 0, most))
        ax.set_title(name, fontsize=TITLE_SIZE, loc="left")
        worlds = q.get("world", [])
        sentences.append(f"{name} {in_words(q['return'], worlds)} ({counted(q['return'], worlds)})")
    for ax in axes[len(only.series) :]:
        ax.set_axis_off()
    if mesh is not None:
        bar = figure.colorbar(mesh, ax=axes, pad=0.01, aspect=35)
        bar.set_label("visits per test episode", fontsize=8)
        bar.ax.tick_params(labelsize=8)
    agent = learner(only.settings.get("agent"))
    caption = (
        f"Mean visits of each state of {only.task} in a greedy test episode, after "
        f"{only.settings.get('episodes')} episodes of training; {agent} agents. Test return, "
        "interquartile mean and 95 % interval: " + "; ".join(sentences) + "."
    )
    return Drawing(figure, caption)
