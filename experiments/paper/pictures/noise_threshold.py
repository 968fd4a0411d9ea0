"""Figure: the test return over the noise on an output of an SE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.drawing import (
    LABEL_SIZE,
    DataFile,
    Drawing,
    Need,
    in_words,
    number,
    panels,
    spread,
)
from envolve.experiments.paper.common.series import learner
from envolve.outer.reporting.style import COLOURS, GREY, legend_above

TITLE = "test returns of agents trained in an SE with noise on one of its outputs"
COMMAND = "noise_threshold.py"
NEEDS: dict[str, tuple[Need, ...]] = {
    "CartPole-v0": (DataFile("noise_threshold", "CartPole-v0", (COMMAND,)),),
    "Acrobot-v1": (DataFile("noise_threshold", "Acrobot-v1", (COMMAND, "default_config_acrobot_syn_env.yaml")),),
}
OUTPUTS = {
    "CartPole-v0": ("position", "velocity", "pole angle", "angular velocity"),
    "Acrobot-v1": ("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2", "velocity 1", "velocity 2"),
}
SHARE = 0.1  # of the return without noise that may be lost


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [only] = data
    figure, (ax,) = panels(6.8, 4.4)
    without = only.series["no noise"]["return"]
    base = spread(without)
    ax.axhspan(base[1], base[2], color=GREY, alpha=0.2, linewidth=0)
    ax.axhline(base[0], color=GREY, linestyle="--", linewidth=1, label="no noise")
    sentences, agents = [], len(without)
    for place, (label, q) in enumerate((k, v) for k, v in only.series.items() if k != "no noise"):
        name = OUTPUTS.get(only.task, ())[int(label)] if label.isdigit() and only.task in OUTPUTS else label
        levels = sorted(set(q["noise_over_std"]))
        groups = [[r for r, x in zip(q["return"], q["noise_over_std"]) if x == level] for level in levels]
        middle, low, high = np.array([spread(g) for g in groups]).T
        colour = COLOURS[place % len(COLOURS)]
        ax.fill_between(levels, low, high, color=colour, alpha=0.15, linewidth=0)
        line, marker = "-" if place < len(COLOURS) else "--", "o" if len(levels) < 12 else None
        ax.plot(levels, middle, color=colour, linestyle=line, marker=marker, markersize=3, linewidth=1.4, label=name)
        failed = sum(not math.isfinite(r) for r in q["return"])
        sentences.append(f"{name} {_bears(levels, middle, base[0])}{f' ({failed} agents failed)' * bool(failed)}")
    ax.set_xscale("log")
    ax.set_xlabel("standard deviation of the noise / of the output", fontsize=LABEL_SIZE)
    ax.set_ylabel("test return on the task", fontsize=LABEL_SIZE)
    ax.set_title(only.task, fontsize=11, loc="left")
    legend_above(ax)
    agent = learner(only.settings.get("agent"))
    caption = (
        f"Agents trained in an SE for {only.task} with Gaussian noise on one of its outputs; {agents} "
        f"{agent} agents for each noise and output. Interquartile means; bands: 95 % "
        f"intervals. Without noise {in_words(without)}. Noise over standard deviation up to which at most "
        f"{100 * SHARE:.0f} % of that is lost: " + "; ".join(sentences) + "."
    )
    return Drawing(figure, caption)


def _bears(levels: Sequence[float], means: Sequence[float], base: float) -> str:
    """The last level before the first at which more than SHARE is lost."""
    borne = "none of those tried"
    for level, mean in zip(levels, means):
        if not mean >= base - SHARE * abs(base):
            return borne
        borne = number(level)
    return f"all ({borne})"
