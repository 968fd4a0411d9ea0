"""Agents in worlds that were fitted to the task beside agents in evolved ones: an SE is no dynamics model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envolve.experiments.paper.common.data import Data
from envolve.experiments.paper.common.drawing import (
    LABEL_SIZE,
    TITLE_SIZE,
    DataFile,
    Drawing,
    Need,
    counted,
    in_words,
    number,
    panels,
    spread,
)
from envolve.experiments.paper.common.series import AMBER, PINK, learner, style
from envolve.experiments.paper.pictures import se
from envolve.outer.reporting.style import BLUE, GREY, ORANGE, clear_legend, legend_above

TITLE = "control for figures 3 and 7: agents in worlds that were fitted to the task, not evolved"


@dataclass(frozen=True)
class BesideSEs(DataFile):
    """Needs with the agents in SEs that compare_proxies.py trained, if there are any."""

    def read(self, results_dir: Path) -> Data | None:
        own = super().read(results_dir)
        others = se.NEEDS[self.task][0].read(results_dir) if own else None
        if own is None or others is None:
            return own
        evolved = {label: q for label, q in others.series.items() if label.endswith(" varied")}
        told = {"published_in_ses": others.settings.get("published")}
        return dataclasses.replace(
            own, series={**own.series, **evolved}, settings={**own.settings, **told}, quick=own.quick or others.quick
        )


NEEDS: dict[str, tuple[Need, ...]] = {
    task: (BesideSEs("model_based_baseline", task, ("model_based_baseline.py", config, "--fit-done")),)
    for task, config in se.CONFIGS.items()
}
WHERE = {  # series -> name, colour
    "real": ("real task", style("real", 0).colour),
    "varied": ("SE, evolved", style("varied", 0).colour),
    "model-based": ("fitted", GREY),
    "done fitted": ("fitted, done too", AMBER),
}
NETS = {"state_net": ("next observation", BLUE), "reward_net": ("reward", ORANGE), "done_net": ("done", PINK)}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [only] = data
    learners = only.settings["learners"]
    figure, (returns, errors) = panels(9.4, 4.4, 1, 2)
    shown = [w for w in WHERE if any(f"{name} {w}" in only.series for name in learners)]
    sentences = []
    for group, name in enumerate(learners):
        texts = []
        for place, where in enumerate(shown):
            q = only.series.get(f"{name} {where}")
            if q is None:
                continue
            title, colour = WHERE[where]
            worlds, x = q.get("world", []), group + 0.8 * ((place + 0.5) / len(shown) - 0.5)
            middle, low, high = spread(q["return"], worlds)
            error = [[middle - low], [high - middle]]
            returns.bar(
                x,
                middle,
                0.72 / len(shown),
                color=colour,
                alpha=0.85,
                yerr=error,
                capsize=2,
                ecolor="#333333",
                label="" if group else title,
            )
            fine = [r for r in q["return"] if math.isfinite(r)]
            aside = np.random.default_rng(0).uniform(-0.25, 0.25, len(fine)) / len(shown)
            returns.plot(x + aside, fine, ".", color="#222222", markersize=2, alpha=0.35)
            texts.append(
                f"{title} {in_words(q['return'], worlds)} (mean {number(float(np.mean(fine or [math.nan])))}, "
                f"{counted(q['return'], worlds)})"
            )
        sentences.append(f"{learner(name)}: " + "; ".join(texts) + ".")
    returns.set_xticks(range(len(learners)), [learner(name) for name in learners], fontsize=LABEL_SIZE)
    returns.set_ylabel("test return on the task", fontsize=LABEL_SIZE)
    returns.set_title(only.task, fontsize=TITLE_SIZE, loc="left")
    legend_above(returns, len(shown))
    fit = only.series["fit"]
    for net, (title, colour) in NETS.items():
        for part, line in (("held out", "-"), ("train", ":")):
            curves = np.array(fit[f"{net} {part}"])
            label = title if part == "held out" else ""
            errors.plot(range(1, curves.shape[1] + 1), curves.mean(0), line, color=colour, linewidth=1.4, label=label)
    errors.set_yscale("log")
    errors.locator_params(axis="x", integer=True)
    errors.set_xlabel("epoch", fontsize=LABEL_SIZE)
    errors.set_ylabel("mean squared error", fontsize=LABEL_SIZE)
    errors.set_title("prediction by the fitted networks", fontsize=TITLE_SIZE, loc="left")
    clear_legend(errors, 3)
    return Drawing(figure, _caption(only, " ".join(sentences)))


def _caption(only: Data, sentences: str) -> str:
    s, fit, seen = only.settings, only.series["fit"], only.series["steps"]
    last = {net: number(float(np.mean([row[-1] for row in fit[f"{net} held out"]]))) for net in NETS}
    share = np.sqrt(np.mean(np.array(fit["output_error"])[:, :-2], 0) / np.mean(fit["output_change"], 0))
    other = "published_in_ses" in s and s["published_in_ses"] != s.get("published")
    total, agents = (f"{np.mean(seen[key]):,.0f}" for key in ("seen", "agents"))
    epochs = len(fit["state_net train"][0])
    return (
        f"Test returns on {only.task} of agents with varied hyperparameters, trained on it, in SEs, and in worlds "
        "whose networks were fitted to steps of the task. Bars: interquartile means; whiskers and brackets: 95 % "
        f"intervals, over worlds where there are several; dots: agents. {sentences}"
        + " The agents in SEs had other hyperparameters (--published on one side only)."
        * other
        + f" Fit: {s['worlds']} worlds, each to {fit['fitted_to'][0]:,} of the {total} steps that the tests of "
        f"{agents} agents took in a search ({len(set(fit['search']))} searches), {epochs} epochs; full lines "
        f"{fit['held_out'][0]:,} steps of other agents, dotted ones those fitted to. Squared errors at the end: next "
        f"observation {last['state_net']}, reward {last['reward_net']}, done {last['done_net']}; errors of the next "
        "observation over its change in a step: " + ", ".join(number(float(x)) for x in share) + "."
    )
