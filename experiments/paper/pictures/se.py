"""Agents in synthetic environments (SEs) beside agents on the task: returns and training steps (figures 3 and 7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.data import DataError
from envolve.experiments.paper.common.drawing import (
    LABEL_SIZE,
    TITLE_SIZE,
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
from envolve.outer.reporting.style import legend_above, thousands

TITLE = "figures 3 and 7: test returns and training steps of agents from SEs and from the task"
CONFIGS = {
    "CartPole-v0": "default_config_cartpole_syn_env.yaml",
    "Acrobot-v1": "default_config_acrobot_syn_env.yaml",
}
BANDIT = "default_config_cartpole_contextual_bandit.yaml"
NEEDS: dict[str, tuple[Need, ...]] = {
    **{
        task: (DataFile("compare_proxies", task, ("compare_proxies.py", config), "se"),)
        for task, config in CONFIGS.items()
    },
    "CartPole-v0_bandit": (
        DataFile(
            "compare_proxies",
            "CartPole-v0",
            ("compare_proxies.py", BANDIT, "--evolved", "varied", "--published"),
            "bandit",
        ),
    ),
}
WHERE = ("real", "varied", "fixed")
BINS = 25


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [only] = data
    learners = list(
        dict.fromkeys(label.rpartition(" ")[0] for label in only.series if label.rpartition(" ")[2] in WHERE)
    )
    if not learners:
        found = ", ".join(only.series) or "none"
        raise DataError(f"compare_proxies, {only.task}: found the series {found}, expected 'ddqn real' and the like")
    figure, axes = panels(3.3 * len(learners) + 0.6, 5.4, 2, len(learners))
    everything = [r for q in only.series.values() for r in _returns(q) if math.isfinite(r)]
    low, high = (min(everything), max(everything)) if everything else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    sentences = []
    for i, name in enumerate(learners):
        top, bottom = axes[i], axes[len(learners) + i]
        title = learner(name)
        texts = []
        for place, where in enumerate(WHERE):
            q = only.series.get(f"{name} {where}")
            if q is None:
                continue
            look, worlds = style(where, place), q.get("world", [])
            returns = [r for r in _returns(q) if math.isfinite(r)]
            if returns:
                shares = np.histogram(returns, edges)[0] / len(returns)
                top.stairs(shares, edges, color=look.colour, fill=True, alpha=0.2)
                top.stairs(shares, edges, color=look.colour, linewidth=1.4, label=look.name)
            middle, lower, upper = spread(q["train_steps"], worlds)
            error = [[middle - lower], [upper - middle]]
            bottom.bar(place, middle, 0.65, color=look.colour, alpha=0.85, yerr=error, capsize=3, ecolor="#333333")
            bottom.annotate(number(middle), (place, upper), (0, 3), textcoords="offset points", ha="center", fontsize=8)
            texts.append(
                f"{look.name} {in_words(q['train_steps'], worlds)} steps, return {in_words(q['return'], worlds)} "
                f"(means {number(mean(q['train_steps']))}, {number(mean(q['return']))}; "
                f"{counted(q['return'], worlds)})"
            )
        sentences.append(f"{title}: " + "; ".join(texts) + ".")
        top.set_title(title if i else f"{only.task}: {title}", fontsize=TITLE_SIZE, loc="left")
        top.set_xlabel("test return on the task", fontsize=LABEL_SIZE)
        there = [place for place, where in enumerate(WHERE) if f"{name} {where}" in only.series]
        names = ("real task", "SE, HPs\nvaried", "SE, HPs\nfixed")
        bottom.set_xticks(there, [names[place] for place in there], fontsize=8)
        bottom.margins(y=0.12)
        thousands(bottom.yaxis)
    axes[0].set_ylabel("share of tests", fontsize=LABEL_SIZE)
    axes[len(learners)].set_ylabel("training steps", fontsize=LABEL_SIZE)
    for alike in (axes[: len(learners)], axes[len(learners) :]):  # one scale, so that learners can be compared
        highest = max(ax.get_ylim()[1] for ax in alike)
        for ax in alike:
            ax.set_ylim(0, highest)
    legend_above(axes[0])
    own = " with varied hyperparameters" * bool(only.settings.get("vary_hp"))
    caption = (
        f"Agents{own} trained in synthetic environments (SEs), evolved with varied or fixed hyperparameters, and on "
        f"{only.task} itself; tested on {only.task}. "
        "Interquartile means; whiskers and brackets: 95 % intervals, over worlds where there are several. "
        + " ".join(sentences)
    )
    return Drawing(figure, caption)


def _returns(q: dict[str, list[Any]]) -> list[float]:
    """Returns of all test episodes, if the data have them."""
    return [r for row in q["test_returns"] for r in row] if "test_returns" in q else q["return"]
