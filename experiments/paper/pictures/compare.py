"""Reward networks (RNs) of every type, and none: the return on the task over the steps of training (figures 5, 9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from envolve.experiments.paper.common.data import Data, DataError
from envolve.experiments.paper.common.drawing import (
    LABEL_SIZE,
    DataFile,
    Drawing,
    Need,
    band,
    counted,
    in_words,
    panels,
    steps_curve,
)
from envolve.experiments.paper.common.series import learner, style
from envolve.outer.reporting.style import cut_low, legend_above, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "figures 5 and 9: learning curves with reward networks of every type and without one"
TASKS = {
    "Cliff": "default_config_gridworld_reward_env.yaml",
    "CartPole-v0": "default_config_cartpole_reward_env.yaml",
    "MountainCarContinuous-v0": "default_config_mountain_car_continuous_reward_env_paper.yaml",
    "Pendulum-v0": "default_config_pendulum_reward_env_paper.yaml",
    "HalfCheetah-v3": "default_config_halfcheetah_reward_env.yaml",
}
STEPS = {"Cliff": 5_000, "CartPole-v0": 50_000, "MountainCarContinuous-v0": 250_000, "HalfCheetah-v3": 500_000}
POINTS = 240  # of a curve
ABOUT = "Interquartile means; bands and brackets: 95 % intervals, over worlds where there are several."
NEEDS: dict[str, tuple[Need, ...]] = {
    task: (DataFile("compare_proxies", task, ("compare_proxies.py", config)),) for task, config in TASKS.items()
}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    figure, (ax,) = panels(6.4, 4.4)
    [only] = data
    ends, steps, cut = draw_curves(ax, only, STEPS.get(only.task))
    ax.set_title(only.task, fontsize=11, loc="left")
    agent = learner(only.settings.get("agent"))
    caption = (
        f"Test return on {only.task} after each training episode, over the environment steps of training; "
        f"{agent} agents. {ABOUT} After {steps:,.0f} steps: " + "; ".join(ends) + f".{cut}"
    )
    return Drawing(figure, caption)


def draw_curves(ax: Axes, data: Data, limit: float | None) -> tuple[list[str], float, str]:
    """A curve per series -> the values at the end in words, at how many steps the curves end, what is cut off."""
    lengths = [sum(n) for q in data.series.values() for n in q["episode_length"]]
    longest = max(lengths, default=0)
    if not longest:
        raise DataError(f"{data.experiment}, {data.task}: found no episodes in any series, expected some")
    grid = np.linspace(0, min(longest, limit or longest), POINTS)
    ends, means, bands = [], [], []
    for place, (label, q) in enumerate(data.series.items()):
        look, worlds = style(label, place), q.get("world", [])
        runs = list(zip(q["episode_return"], q["episode_length"]))
        fine = [bool(r) and bool(n) and all(math.isfinite(v) for v in r) for r, n in runs]
        last = np.full(len(runs), np.nan)
        if any(fine):
            curves = np.array([steps_curve(r, n, grid) for (r, n), ok in zip(runs, fine) if ok])
            middle, low, high = band(curves, [w for w, ok in zip(worlds, fine) if ok])
            ax.fill_between(grid, low, high, color=look.colour, alpha=0.18, linewidth=0)
            ax.plot(grid, middle, color=look.colour, linestyle=look.line, linewidth=1.5, label=look.name)
            last[fine] = curves[:, -1]
            means.append(middle)
            bands += [low, high]
        ends.append(f"{look.name} {in_words(last.tolist(), worlds)} ({counted(last.tolist(), worlds)})")
    thousands(ax.xaxis)
    ax.set_xlim(0, grid[-1])
    ax.set_xlabel("environment steps of training", fontsize=LABEL_SIZE)
    ax.set_ylabel("test return on the task", fontsize=LABEL_SIZE)
    legend_above(ax)
    cut = cut_low(ax, means, bands) if means else ""
    return ends, float(grid[-1]), f" {cut}" * bool(cut)
