"""Figure: correlation of hyperparameter quality in an SE and on the task, a point per set of hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.drawing import LABEL_SIZE, DataFile, Drawing, Need, number, panels, spread
from envolve.experiments.paper.common.series import learner
from envolve.experiments.paper.pictures.se import CONFIGS
from envolve.outer.reporting.style import BLUE, GREY, legend_above

TITLE = "returns with sampled hyperparameters in an SE and on the task, and their correlation"
NEEDS: dict[str, tuple[Need, ...]] = {
    task: (DataFile("correlation", task, ("correlation.py", config)),) for task, config in CONFIGS.items()
}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [only] = data
    figure, (ax,) = panels(4.8, 4.6)
    points = {where: _by_set(only.series[where]) for where in ("se", "real")}
    sets = sorted(set(points["se"]) & set(points["real"]))
    x, y = (np.array([points[where][s] for s in sets]).reshape(-1, 3) for where in ("se", "real"))
    errors = [np.maximum(0, [v[:, 0] - v[:, 1], v[:, 2] - v[:, 0]]) for v in (x, y)]
    ax.errorbar(x[:, 0], y[:, 0], xerr=errors[0], yerr=errors[1], fmt="o", color=BLUE, markersize=5, linewidth=0.8)
    if len(sets):
        ends = [min(x[:, 0].min(), y[:, 0].min()), max(x[:, 0].max(), y[:, 0].max())]
        ax.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, zorder=1, label="as good in both")
        legend_above(ax)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_xlabel("test return on the task, agents from the SE", fontsize=LABEL_SIZE)
    ax.set_ylabel("test return on the task, agents from the task", fontsize=LABEL_SIZE)
    ax.set_title(only.task, fontsize=11, loc="left")
    words = ", ".join(
        f"{name.capitalize()} {number(middle)} [{number(low)}, {number(high)}]"
        for name, (middle, low, high) in only.series["correlation"].items()
    )
    failed = sum(bool(why) for where in ("se", "real") for why in only.series[where]["failed"])
    agent = learner(only.settings.get("agent"))
    caption = (
        f"{len(sets)} drawn sets of hyperparameters, {only.settings.get('agents')} {agent} agents "
        f"each in the SE and on {only.task}, trained for equally long{f'; {failed} agents failed' * bool(failed)}. "
        f"Points: interquartile means with 95 % intervals. Correlation of the sets' means: {words}."
    )
    return Drawing(figure, caption)


def _by_set(q: dict[str, list[Any]]) -> dict[int, tuple[float, float, float]]:
    """Set -> interquartile mean, low, high of its agents' returns; a set in which all failed is left out."""
    groups: dict[int, list[float]] = {}
    for number_of_set, value in zip(q["set"], q["return"]):
        groups.setdefault(number_of_set, []).append(value)
    out = {s: spread(values) for s, values in groups.items()}
    return {s: v for s, v in out.items() if v[0] == v[0]}
