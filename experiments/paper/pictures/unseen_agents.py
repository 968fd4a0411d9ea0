"""Agents that worlds never saw: what they reach in worlds and on the task after the same number of steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.data import DataError
from envolve.experiments.paper.common.drawing import (
    LABEL_SIZE,
    DataFile,
    Drawing,
    Need,
    counted,
    in_words,
    mean,
    number,
    panels,
    spread,
)
from envolve.experiments.paper.common.series import learner, style
from envolve.experiments.paper.common.unseen import by_world, share
from envolve.outer.reporting.style import GREY, legend_above

TITLE = "agents of other kinds and libraries in SEs and on the task, after the same number of steps"
CONFIGS = {  # variant -> task, configuration without default_config_
    "CartPole-v0": ("CartPole-v0", "cartpole_syn_env"),
    "CartPole-v0_contextual_bandit": ("CartPole-v0", "cartpole_contextual_bandit"),
    "Acrobot-v1": ("Acrobot-v1", "acrobot_syn_env"),
}
NEEDS: dict[str, tuple[Need, ...]] = {
    variant: (DataFile("unseen_agents", task, ("unseen_agents.py", f"default_config_{name}.yaml"), f"{name}_varied"),)
    for variant, (task, name) in CONFIGS.items()
}
SHIFT = 0.2


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [only] = data
    kinds, mark, seen = (only.settings.get(key) for key in ("kinds", "mark", "seen"))
    if not kinds or mark is None or seen is None:
        raise DataError(f"unseen_agents, {only.task}: found no settings kinds, mark and seen, expected all of them")
    figure, (ax,) = panels(1.1 * len(kinds) + 1.6, 4.2)
    sentences = []
    for place, kind in enumerate(kinds):
        texts = []
        for where, label, x in (("real", "real", place - SHIFT), ("worlds", "varied", place + SHIFT)):
            q, look = only.series[f"{kind} {where}"], style(label, 0)
            worlds = q.get("world", [])
            means = [mean(values) for values in by_world(q).values()] if worlds else q["return"]
            dots = [v for v in means if math.isfinite(v)]
            spots = x + np.linspace(-0.09, 0.09, len(dots)) if len(dots) > 1 else [x] * len(dots)
            ax.scatter(spots, dots, s=12, color=look.colour, alpha=0.4, linewidth=0)
            middle, low, high = spread(q["return"], worlds)
            name = "real task" if where == "real" else "SEs"
            if math.isfinite(middle):
                error = [[middle - low], [high - middle]]
                ax.errorbar(
                    x,
                    middle,
                    error,
                    fmt="D",
                    color=look.colour,
                    markersize=6,
                    capsize=4,
                    markeredgecolor="k",
                    ecolor="#333333",
                    label="" if place else name,
                )
            text = f"{name} {in_words(q['return'], worlds)}, mean {number(mean(q['return']))}"
            reached = f", mean reaches it in {share(means, mark)} SEs" * (where == "worlds")
            texts.append(f"{text} ({counted(q['return'], worlds)}{reached})")
        words = learner(kind) + " (the SEs were evolved with it)" * (kind in seen)
        sentences.append(f"{words}: " + "; ".join(texts) + ".")
    ax.axhline(mark, color=GREY, linewidth=1, linestyle="--", label=f"mark: {mark:g}")
    ax.set_xticks(range(len(kinds)), [_tick(k) + "\n(seen)" * (k in seen) for k in kinds], fontsize=8)
    ax.set_ylabel("test return on the task", fontsize=LABEL_SIZE)
    ax.set_title(f"{only.task}, {only.settings.get('steps', 0):,} steps", fontsize=11, loc="left")
    ax.margins(y=0.08)
    legend_above(ax)
    caption = (
        f"Fresh agents trained for at most {only.settings.get('steps', 0):,} steps in synthetic environments (SEs) and "
        f"on {only.task}, tested greedily on {only.task}. Diamonds: interquartile means with 95 % intervals, "
        "over whole SEs where there are several; dots: the mean of an SE's agents, on the task single agents. "
        f"Mark: a mean return of {mark:g}. " + " ".join(sentences)
    )
    return Drawing(figure, caption)


def _tick(kind: str) -> str:
    """Name of a learner on two lines."""
    return learner(kind).replace(", ", ",\n") if "," in learner(kind) else "\n".join(learner(kind).rsplit(" ", 1))
