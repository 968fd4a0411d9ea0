"""Figure: returns and training steps over one hyperparameter at a time, in evolved worlds and on the task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.drawing import (
    LABEL_SIZE,
    TITLE_SIZE,
    DataFile,
    Drawing,
    Need,
    counted,
    in_words,
    panels,
    spread,
)
from envolve.experiments.paper.common.series import learner, style
from envolve.experiments.paper.pictures.se import CONFIGS
from envolve.outer.reporting.style import legend_above, thousands

TITLE = "test returns and training steps as a function of one hyperparameter at a time"
COMMAND = "hyperparameter_sensitivity.py"
NEEDS: dict[str, tuple[Need, ...]] = {
    task: (DataFile("hyperparameter_sensitivity", task, (COMMAND, config)),)
    for task, config in {**CONFIGS, "Cliff": "default_config_gridworld_reward_env.yaml"}.items()
}
WORLD = {"se": "SE", "rn": "reward network", "real": "real task"}
NAMES = {
    "lr": "learning rate",
    "batch_size": "batch size",
    "hidden_size": "hidden units",
    "hidden_layer": "hidden layers",
}
QUANTITIES = {"return": "test return on the task", "train_steps": "training steps"}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [only] = data
    grids, own = only.settings["grids"], only.settings["own"]
    sides = [side for side in WORLD if f"{side} {next(iter(grids))}" in only.series]
    figure, axes = panels(2.9 * len(grids) + 0.8, 5.4, 2, len(grids))
    sentences = []
    for column, (name, values) in enumerate(grids.items()):
        places, numeric = _places(values)
        for row, (quantity, title) in enumerate(QUANTITIES.items()):
            ax = axes[row * len(grids) + column]
            for side in sides:
                q, colour = only.series[f"{side} {name}"], style("real" if side == "real" else "varied", 0).colour
                middle, low, high = np.array([spread(*_at(q, quantity, v)) for v in values]).T
                ax.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
                ax.plot(places, middle, "o-", color=colour, markersize=3, linewidth=1.4, label=WORLD[side])
            if own[name] in values:
                ax.axvline(places[values.index(own[name])], color="#999999", linewidth=0.8, linestyle=":")
            if numeric:
                ax.set_xscale("log")
                ax.minorticks_off()
            ax.set_xticks(places, [shown(v) for v in values], fontsize=7)
            if row:
                thousands(ax.yaxis)
            if not column:
                ax.set_ylabel(title, fontsize=LABEL_SIZE)
        axes[column].set_title(NAMES.get(name, name), fontsize=TITLE_SIZE, loc="left")
        sentences.append(
            f"{NAMES.get(name, name)}: " + "; ".join(_between(only.series, s, name, values) for s in sides)
        )
    for alike in (axes[: len(grids)], axes[len(grids) :]):  # one scale, so that panels can be compared
        limits = np.array([ax.get_ylim() for ax in alike])
        for ax in alike:
            ax.set_ylim(limits[:, 0].min(), limits[:, 1].max())
    legend_above(axes[0])
    first = only.series[f"{sides[0]} {next(iter(grids))}"]
    episodes = only.settings["hyperparameters"]["real"]["train_episodes"]
    agent = learner(only.settings.get("agent"))
    caption = (
        f"{agent} agents on {only.task} and in evolved worlds, one hyperparameter changed at a time; "
        "dotted: their own value. Interquartile means; bands and brackets: 95 % intervals, over worlds where "
        f"there are several; per point {counted(*_at(first, 'return', grids[next(iter(grids))][0]))}, as many on the "
        f"task, at most {episodes:,} episodes. Return at the worst and the best value: " + ". ".join(sentences) + "."
    )
    return Drawing(figure, caption)


def shown(value: Any) -> str:
    """128 and 0.00033, never 1.3e+02."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}"


def _places(values: Sequence[Any]) -> tuple[list[float], bool]:
    """Positions of values on an axis, and whether it is logarithmic, as for numeric factors."""
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for v in values)
    return (list(values), True) if numeric else (list(range(len(values))), False)


def _at(q: dict[str, list[Any]], quantity: str, value: Any) -> tuple[list[float], list[str]]:
    """Results of agents with this value, and the world of each. Failed agents are left out."""
    rows = [i for i, v in enumerate(q["value"]) if v == value]
    fine = [math.nan if q["failed"][i] else q[quantity][i] for i in rows]
    return fine, [q["world"][i] for i in rows] if "world" in q else []


def _between(series: dict[str, Any], side: str, name: str, values: Sequence[Any]) -> str:
    """The lowest and the highest of the interquartile means of the returns."""
    q = series[f"{side} {name}"]
    middles = {v: spread(*_at(q, "return", v))[0] for v in values}
    known = [v for v in values if not math.isnan(middles[v])]
    if not known:
        return f"{WORLD[side]} -"
    worst, best = min(known, key=middles.__getitem__), max(known, key=middles.__getitem__)
    text = [f"{in_words(*_at(q, 'return', v))} at {shown(v)}" for v in (worst, best)]
    return f"{WORLD[side]} {text[0]} and {text[1]}"
