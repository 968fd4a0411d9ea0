"""The picture of a run: its learning curve, and what the evolved world is worth to an agent. Marks differ in colour and
in shape."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envolve.core.statistics import AgentRuns, or_none, summary, within
from envolve.envs.task import mark_of
from envolve.envs.worlds.file import write_atomic
from envolve.outer.reporting.comparison import POSSIBLE_STEPS
from envolve.outer.reporting.scores import CurvePoint
from envolve.outer.reporting.style import (
    BLUE,
    GREY,
    ORANGE,
    clear_legend,
    end_at,
    lowest_shown,
    new_figure,
    thousands,
    title_of_panel,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMPARISON = "comparison.json"  # beside the picture
SIDES = (("in the evolved world", "in the real task"), ("with the evolved shaper", "with the human's shapers"))


def learning_curve(
    path: str | os.PathLike[str],
    rows: Sequence[CurvePoint],
    title: str,
    solved_reward: float | None = None,
    comparison: tuple[AgentRuns, AgentRuns] | None = None,
    ylabel: str = "test return on the real task",
    restarts: Sequence[int] = (),
    shaper: bool = False,
) -> None:
    """Write a PNG (150 dpi). Left: the unperturbed world and 10 to 90 % of the population in every generation.
    Right, with a comparison (agents trained in the evolved world, in the real task): training steps against return.

    solved_reward: in the units of ylabel; leave it out where the score is no return. restarts: generations at which the
    run began anew from another world. shaper: a shaper is evolved, and beside it the human's are drawn. What failed is
    not drawn, but counted in the legend. The agents' figures are kept beside the picture in COMPARISON.
    """
    solved_reward = mark_of(solved_reward)
    if comparison is not None:
        _keep(Path(path).with_name(COMPARISON), comparison, shaper)
    panels = 1 if comparison is None else 2
    figure, axes = new_figure(5.6 * panels, 3.9, panels)
    figure.suptitle(title, fontsize=12)
    _evolution(axes[0], rows, solved_reward, ylabel, restarts, "shaper" if shaper else "world")
    if comparison is not None:
        ylabel = ylabel if shaper else "test return on the real task"
        _comparison(axes[1], comparison, solved_reward, SIDES[shaper], ylabel)
    figure.savefig(path, format="png")


def _keep(path: Path, comparison: tuple[AgentRuns, AgentRuns], shaper: bool) -> None:
    """Writes the figures of every agent: trained where -> returns, steps; null where an agent failed."""
    content = {
        name: {key: [or_none(x) for x in getattr(runs, key)] for key in ("returns", "steps")}
        for name, runs in zip(SIDES[shaper], comparison)
    }
    write_atomic(str(path), (json.dumps(content, allow_nan=False) + "\n").encode())


def _solved_line(ax: Axes, solved_reward: float | None) -> None:
    if solved_reward is not None:
        ax.axhline(solved_reward, color=GREY, linestyle="--", linewidth=1, label=f"solved: {solved_reward:,g}")


def _highest(values: Sequence[float], solved_reward: float | None) -> float:
    """The largest value that is drawn. At least one is finite."""
    return max(float(v) for v in (*values, math.nan if solved_reward is None else solved_reward) if math.isfinite(v))


def _evolution(
    ax: Axes, rows: Sequence[CurvePoint], solved_reward: float | None, ylabel: str, restarts: Sequence[int], what: str
) -> None:
    from matplotlib.ticker import MaxNLocator

    x = np.array([r.generation for r in rows])
    mean, low, high = (np.array([getattr(r, name) for r in rows], dtype=float) for name in ("mean", "low", "high"))
    failed = sum(r.failed for r in rows)
    agents, members = (max((getattr(r, name) for r in rows), default=0) for name in ("agents", "members"))
    inside = [f"n = {members}"] * (members > 0) + [f"{failed} failed"] * (failed > 0)
    band = "population, 10 to 90 %" + (f" ({', '.join(inside)})" if inside else "")
    of = f" of {agents}" if agents else ""
    bottom = lowest_shown(mean, low, high)
    if bottom is not None:
        band += f", cut at {bottom:,.4g}" if abs(bottom) < 1000 else f", cut at {bottom:,.0f}"
    if len(rows) == 1:  # a band and a line would show nothing
        ax.vlines(x, low, high, color=BLUE, alpha=0.3, linewidth=6, label=band)
    else:
        ax.fill_between(x, low, high, color=BLUE, alpha=0.2, linewidth=0, label=band)
    marker = "o" if len(rows) < 20 else None
    ax.plot(x, mean, color=BLUE, linewidth=1.6, marker=marker, markersize=4, label=f"unperturbed {what}, mean{of}")
    _solved_line(ax, solved_reward)
    if bottom is not None:
        end_at(ax, bottom, _highest([*mean, *high], solved_reward))
    for i, generation in enumerate(restarts):
        ax.axvline(generation, color=ORANGE, linestyle=":", linewidth=1.2, label=None if i else "restart")
    ax.set_xlabel("generation")
    ax.set_ylabel(ylabel)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if len(rows):
        margin = 0.5 if len(rows) == 1 else 0.02 * (x[-1] - x[0])
        ax.set_xlim(x[0] - margin, x[-1] + margin)
    title_of_panel(ax, f"Evolution of the {what}")
    clear_legend(ax)


def _mark(i: int, steps: list[float], returns: list[float], categories: bool) -> tuple[float, float, Any, Any]:
    """Position of the large mark of one side, and its error bars; None if there is no interval."""
    s, r = summary(steps), summary(returns)

    def bars(figure: dict[str, Any], bounds: tuple[float, float] | None = None) -> Any:
        if figure["iqm_interval"] is None:
            return None
        ends = within(figure["iqm_interval"][0], figure["iqm_interval"][1], bounds)
        return [[max(0.0, figure["iqm"] - ends[0])], [max(0.0, ends[1] - figure["iqm"])]]

    return (float(i) if categories else s["iqm"]), r["iqm"], None if categories else bars(s, POSSIBLE_STEPS), bars(r)


def _comparison(
    ax: Axes, comparison: tuple[AgentRuns, AgentRuns], solved_reward: float | None, names: tuple[str, str], ylabel: str
) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    _solved_line(ax, solved_reward)
    all_steps: list[float] = []
    fine = {s for agents in comparison for s, r in zip(agents.steps, agents.returns) if math.isfinite(r)}
    categories = len(fine) == 1  # all trained equally long: an axis of steps would show one value
    looks = zip(comparison, names, (BLUE, ORANGE), ("o", "s"))
    for i, (agents, name, colour, marker) in enumerate(looks):
        runs = [(s, r) for s, r in zip(agents.steps, agents.returns) if math.isfinite(r) and math.isfinite(s)]
        label = f"trained {name} ({len(agents.returns)} agents"
        label += f", {len(agents.returns) - len(runs)} failed)" if len(runs) < len(agents.returns) else ")"
        steps, returns = [s for s, _ in runs], [r for _, r in runs]
        all_steps += steps
        places = [i] * len(steps) if categories else steps
        ax.scatter(places, returns, s=22, color=colour, marker=marker, alpha=0.35, linewidths=0)
        if not runs:
            ax.scatter([], [], color=colour, marker=marker, label=label)
            continue
        x, y, xerr, yerr = _mark(i, steps, returns, categories)
        ax.errorbar(
            x,
            y,
            xerr=xerr,
            yerr=yerr,
            color=colour,
            marker=marker,
            markersize=8,
            markeredgecolor="white",
            capsize=3,
            linewidth=1.6,
            label=label,
            zorder=3,
        )
    shown = [r for agents in comparison for r in agents.returns if math.isfinite(r)]
    marks = [summary([r for r in agents.returns if math.isfinite(r)])["iqm"] for agents in comparison if
             any(map(math.isfinite, agents.returns))]  # fmt: skip
    bottom = lowest_shown(np.array(marks), np.array(shown), np.array(shown))
    if bottom is not None:
        outside = sum(bool(r < bottom) for r in shown)
        end_at(ax, bottom, _highest(shown, solved_reward))
        ax.plot([], [], " ", label=f"{outside} agent{'s' * (outside != 1)} below {bottom:.4g}")
    positive = [s for s in all_steps if s > 0]
    if categories:
        ax.set_xticks([0, 1], names)
        ax.set_xlim(-0.6, 1.6)
    elif positive and len(positive) == len(all_steps) and max(positive) > 8 * min(positive):
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_minor_formatter(NullFormatter())
    if not categories:
        thousands(ax.xaxis)
    ax.set_xlabel(f"all after {all_steps[0]:,.0f} training steps" if categories else "training steps of an agent")
    ax.set_ylabel(ylabel)
    title_of_panel(ax, "Agents, with interquartile mean and 95 % interval")
    clear_legend(ax)
