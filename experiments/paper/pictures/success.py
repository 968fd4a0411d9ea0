"""Figure: scores of runs of the outer loop over the generations (figure 2)."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from envolve.envs.task import make_task
from envolve.experiments.paper.common.data import DataError
from envolve.experiments.paper.common.drawing import LABEL_SIZE, Drawing, Need, band, in_words, panels
from envolve.outer.reporting.scores import read_curve
from envolve.outer.reporting.style import BLUE, GREY, legend_above

TITLE = "figure 2: scores of many evolutions of SEs over the generations"
LINES = 20  # runs that are drawn one by one, as published


@dataclass
class Runs:
    curves: dict[str, list[float]]  # a run's folder -> mean score of its unperturbed world in every generation
    quick: bool


@dataclass(frozen=True)
class RunFolder:
    """The runs that train_proxy.py left below <results-dir>/<name>[_quick]/."""

    name: str
    command: tuple[str, ...]

    def read(self, results_dir: Path) -> Runs | None:
        for folder, quick in ((self.name, False), (f"{self.name}_quick", True)):
            files = sorted((results_dir / folder).glob("seed*/scores.csv"), key=lambda p: (len(p.parent.name), p))
            curves = {str(path.parent): _curve(path) for path in files}
            curves = {name: curve for name, curve in curves.items() if curve}
            if curves:
                return Runs(curves, quick)
        return None


def _curve(path: Path) -> list[float]:
    """A generation in which all agents failed has the score of the one before, as published."""
    try:
        points = read_curve(path)
    except (KeyError, ValueError, csv.Error) as e:
        raise DataError(f"{path}: found {e!r}, expected the scores of a run") from None
    out: list[float] = []
    for point in points:
        out.append(point.mean if math.isfinite(point.mean) or not out else out[-1])
    return out


def _gridworld(task: str) -> RunFolder:
    words = ("train_proxy.py", "default_config_gridworld.yaml", "--name", task, "--set")
    return RunFolder(f"{task}_fixed", (*words, f"env_name={task}", "agents.gtn.synthetic_env_type=0"))


TRAIN = "train_proxy.py"
NEEDS: dict[str, tuple[Need, ...]] = {
    "CartPole-v0": (RunFolder("cartpole_syn_env_varied", (TRAIN, "default_config_cartpole_syn_env.yaml")),),
    "Acrobot-v1": (RunFolder("acrobot_syn_env_varied", (TRAIN, "default_config_acrobot_syn_env.yaml")),),
    **{task: (_gridworld(task),) for task in ("EmptyRoom22", "EmptyRoom23", "EmptyRoom33")},
}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [runs] = data
    solved = make_task(variant).solved_reward
    generations = max(len(curve) for curve in runs.curves.values())
    x = np.arange(1, generations + 1)
    held = [np.array(c + c[-1:] * (generations - len(c))) for c in runs.curves.values()]
    failed = sum(not np.isfinite(c).all() for c in held)
    fine = np.array([c for c in held if np.isfinite(c).all()])
    if not len(fine):
        raise DataError(f"success_{variant}: found no run with a score in its first generation, expected one")
    figure, (ax,) = panels(6.4, 4.2)
    for curve in fine[:LINES]:
        ax.plot(x, curve, color=GREY, linewidth=0.5, alpha=0.6)
    middle, low, high = band(fine)
    ax.fill_between(x, low, high, color=BLUE, alpha=0.2, linewidth=0)
    ax.plot(x, middle, color=BLUE, linewidth=1.8, label=f"interquartile mean of {len(fine)} runs")
    ax.axhline(solved, color=GREY, linestyle="--", linewidth=1, label=f"solved: {solved:g}")
    ax.set_title(variant, fontsize=11, loc="left")
    ax.set_xlabel("generation", fontsize=LABEL_SIZE)
    ax.set_ylabel("test return, agents of the unperturbed SE", fontsize=LABEL_SIZE)
    ax.set_xlim(1, max(2, generations))
    legend_above(ax)
    reached = sum(any(v >= solved for v in c) for c in runs.curves.values())
    caption = (
        f"Evolution of SEs for {variant}: mean test return of the agents trained in the unperturbed SE of each "
        f"generation, {len(runs.curves)} runs{f', {failed} of them without a score at first' * bool(failed)}. Band: "
        f"95 % interval over runs; grey: {min(LINES, len(fine))} single runs; a run that ended keeps its "
        f"last score. In the last generation {in_words(fine[:, -1].tolist())}; {reached} of {len(runs.curves)} runs "
        f"reached {solved:g} in some generation."
    )
    return Drawing(figure, caption)
