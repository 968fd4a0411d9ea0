#!/usr/bin/env python3
"""Draws what PPO reaches by its budget of steps, in distilled worlds and in those that were evolved from them.

    python3 benchmarks/worlds/budget_figure.py                 docs/budgets.png
    python3 benchmarks/worlds/budget_figure.py --table         the same numbers in Markdown

Data are the cells that continuous_control.py wrote into results/continuous_control/<folder>/ (committed). Nothing is
computed again. One table at one budget cannot tell a world that teaches more from one that teaches sooner. At the right
is what a world pays most for, without any agent (its learner "greedy"), where agents would end that learned it all.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common import cells  # noqa: E402
from benchmarks.worlds import continuous_control, continuous_figure  # noqa: E402
from envolve.experiments.paper.common.drawing import panels  # noqa: E402
from envolve.outer.reporting.style import COLOURS  # noqa: E402

ROLLOUT = 2048  # steps; PPO learns after each
EVOLVED_WITH = 4 * ROLLOUT
MOST = 10 * ROLLOUT


class Curve(NamedTuple):
    """PPO's agents in the worlds of one folder of ``continuous_figure.DATA``."""

    folder: str
    place: str
    words: str


class Panel(NamedTuple):
    task: str
    learner: str  # of continuous_control.SETTINGS
    published: float  # PPO's return in the evolved worlds of Liesen et al. 2024 (arXiv:2406.12589)
    curves: tuple[Curve, ...]


DISTILLED, TIMED, VARIED = "distilled", "evolved with four rollouts", "evolved with two to eight"
PAID = "evolved with two to eight, and with what the world pays most for"
COLOUR = dict(zip((DISTILLED, TIMED, VARIED, PAID), COLOURS))
PANELS = (
    Panel("Pendulum-v1", "ppo", -205, (
        Curve("pendulum_v1", "distilled", DISTILLED), Curve("pendulum_v1", "evolved", TIMED))),
    Panel("HalfCheetah-v5", "ppo_normalised", 1657, (
        Curve("half_cheetah", "distilled", DISTILLED), Curve("half_cheetah_evolved", "evolved", TIMED),
        Curve("half_cheetah_budget", "evolved", VARIED), Curve("half_cheetah_best_paid", "evolved", PAID))),
    Panel("Hopper-v5", "ppo_normalised", 854, (
        Curve("hopper_second", "distilled", DISTILLED), Curve("hopper_budget", "evolved", VARIED),
        Curve("hopper_best_paid", "evolved", PAID))),
    Panel("Walker2d-v5", "ppo_normalised", 858, (
        Curve("walker2d_balanced", "distilled", DISTILLED), Curve("walker2d_evolved", "evolved", TIMED),
        Curve("walker2d_budget", "evolved", VARIED), Curve("walker2d_best_paid", "evolved", PAID))),
)  # fmt: skip


def points(rows: list[cells.Row], place: str, learner: str) -> dict[int, list[float]]:
    """Steps -> mean return of the agents in each world. A cell of another number of steps than whole rollouts is left
    out, as its agents trained for fewer than it says."""
    means: dict[int, list[float]] = {}
    for row in rows:
        if (row["place"], row["learner"]) == (place, learner) and row["steps"] % ROLLOUT == 0:
            means.setdefault(row["steps"], []).append(float(np.mean(row["returns"])))
    return {steps: means[steps] for steps in sorted(means)}


class Drawn(NamedTuple):
    """A curve with its points, and the greedy returns of its worlds."""

    curve: Curve
    points: dict[int, list[float]]
    greedy: list[float]


def of_panel(panel: Panel) -> list[Drawn]:
    """The curves of a panel."""
    out = []
    for curve in panel.curves:
        rows = cells.results(continuous_figure.DATA / curve.folder, continuous_control.READ)
        greedy = points(rows, curve.place, continuous_control.GREEDY)
        out.append(Drawn(curve, points(rows, curve.place, panel.learner), greedy.get(0, [])))
    return out


def picture() -> bytes:
    """A PNG with a panel for each task: means over worlds and their 95 % intervals."""
    figure, axes = panels(11, 7.0, 2, len(PANELS) // 2)
    for ax, panel in zip(axes, PANELS):
        for i, (curve, found, greedy) in enumerate(of_panel(panel)):
            colour = COLOUR[curve.words]
            steps = list(found)
            mean, low, high = np.array([continuous_figure.of_means(found[n]) for n in steps]).T
            ax.plot(steps, mean, "o-", color=colour, markersize=4, linewidth=1.6, label=curve.words)
            ax.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
            where = np.full(len(greedy), 1.06 * MOST + 400 * i)
            ax.plot(where, greedy, "_", color=colour, markersize=9, markeredgewidth=1.4)
        ax.axvline(EVOLVED_WITH, color="grey", linewidth=0.8, linestyle=":")
        ax.axhline(
            panel.published, color="grey", linewidth=0.8, linestyle="--", label="published, at most 10,000 steps"
        )
        ax.set_xticks(range(0, MOST + 1, EVOLVED_WITH // 2))
        ax.set_title(panel.task, fontsize=10)
        ax.set_xlabel("PPO's steps in the world", fontsize=9)
    for ax in axes[::2]:
        ax.set_ylabel("return on the task", fontsize=9)
    axes[0].legend(*axes[1].get_legend_handles_labels(), fontsize=7.5, loc="lower right")  # axes[1] has all curves
    return continuous_figure.png(figure)


def table() -> str:
    """Mean over worlds and its interval of every point, in Markdown."""
    parts = []
    for panel in PANELS:
        curves = of_panel(panel)
        budgets = sorted({steps for drawn in curves for steps in drawn.points})
        lines = [f"| {panel.task}: rollouts of {ROLLOUT:,} steps | {' | '.join(str(n // ROLLOUT) for n in budgets)} "
                 "| greedy |", "|---" * (len(budgets) + 2) + "|"]  # fmt: skip
        for curve, found, greedy in curves:
            counted = "/".join(str(n) for n in sorted({len(means) for means in found.values()}))
            row = [f"{curve.words} ({counted} worlds)", *(said(found.get(n, [])) for n in budgets), said(greedy)]
            lines.append(f"| {' | '.join(row)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def said(means: list[float]) -> str:
    """Mean and interval of at least three worlds, the means themselves of fewer."""
    if len(means) < 3:
        return "; ".join(f"{mean:,.0f}" for mean in means)
    mean, low, high = continuous_figure.of_means(means)
    return f"{mean:,.0f} [{low:,.0f}, {high:,.0f}]"


def main(argv: list[str] | None = None) -> int:
    return continuous_figure.command("budget_figure.py", __doc__, ROOT / "docs" / "budgets.png", picture, table, argv)


if __name__ == "__main__":
    sys.exit(main())
