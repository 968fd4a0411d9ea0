"""Picture of an evolution: scores against the number of candidates and against environment steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from envolve.llm.reporting.lineage import name_of, shown_range
from envolve.llm.search.individual import HUMAN, Individual
from envolve.outer.reporting.report import precise
from envolve.outer.reporting.style import BLUE, GREEN, GREY, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from envolve.llm.tune import Tuned


class Point(NamedTuple):
    """Attempt with its position in the pictures: total number of candidates and of environment steps so far."""

    individual: Individual
    candidates: int
    steps: int


def points_of(individuals: Sequence[Individual], tunings: Mapping[int, Tuned]) -> list[Point]:
    """In the order of ids. A tuning comes after all of them, and its steps, which are charged to the one that was
    tuned, do too."""
    points, steps = [], 0
    for k, i in enumerate(sorted((i for i in individuals if i.operator != HUMAN), key=lambda i: i.id), 1):
        steps += i.steps - (tunings[i.id].steps if i.id in tunings else 0)
        points.append(Point(i, k, steps))
    return points


def scores_picture(
    path: Path, individuals: Sequence[Individual], human: Individual | None, title: str, unit: str,
    tuned: Sequence[Individual] = (), tunings: Mapping[int, Tuned] | None = None,
) -> None:  # fmt: skip
    """Write a PNG (150 dpi). Left: against the number of candidates; right: against environment steps of all agents.
    The line is the best so far, the human's shapers are dashed with their 95 % interval, attempts without a score are
    marks at the bottom. tuned: those whose numbers were moved, with their scores; tunings: how, by id."""
    tunings = tunings or {}
    points = points_of(individuals, tunings)
    good = [p for p in points if p.individual.ok]
    stars = [i for i in tuned if i.ok]
    means = [mean for t in tunings.values() for _, mean, _ in t.history if math.isfinite(mean)]
    reference = human if human is not None and human.ok else None
    shown = [p.individual.score for p in good] + [i.score for i in stars] + means
    low, high = shown_range(shown + ([reference.score] if reference is not None else []))
    figure, axes = new_figure(10.5, 4.2, 2)
    figure.suptitle(title, fontsize=11)
    for ax, by_steps in zip(axes, (False, True)):
        _attempts(ax, points, good, by_steps, low)
        end = 0 if not points else points[-1].steps if by_steps else points[-1].candidates
        at = [end] * len(stars)
        for k, (number, t) in enumerate(tunings.items()):
            if by_steps:
                x = [end + steps for steps, _, _ in t.history]
                y = [max(mean, low) for _, mean, _ in t.history]
                label = None if k else "population in tuning, mean"
                ax.plot(x, y, color=GREEN, linewidth=1.2, marker=".", markersize=4, label=label)
                end += t.steps
                at = [end if i.id == number else x0 for i, x0 in zip(stars, at)]
        for k, (i, x_star) in enumerate(zip(stars, at)):
            label = f"{name_of(i)} tuned: {precise(i.score)}"
            y_star = max(i.score, low)
            ax.plot([x_star], [y_star], marker="*", markersize=13, color=GREEN, markeredgecolor="black", zorder=5,
                    markeredgewidth=0.6, linestyle="none", label=label if k < 4 else None, clip_on=False)  # fmt: skip
        if reference is not None:
            label = f"human: {precise(reference.score)}" + ", 95 % interval" * (reference.interval is not None)
            ax.axhline(reference.score, color="black", linestyle="--", linewidth=1.2, label=label)
            if reference.interval is not None:
                ax.axhspan(*reference.interval, color="black", alpha=0.08, linewidth=0)
        ax.set_xlim(left=0)
        ax.set_ylim(low - 0.04 * (high - low), high)  # room for the marks at the bottom
        ax.set_ylabel(f"score, {unit}")
    axes[1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, format="png")


def _attempts(ax: Axes, points: list[Point], good: list[Point], by_steps: bool, low: float) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    def x(p: Point) -> int:
        return p.steps if by_steps else p.candidates

    bars = [p for p in good if p.individual.interval is not None and p.individual.score >= low]
    for p in bars:
        assert p.individual.interval is not None
        ax.vlines(x(p), *p.individual.interval, color=BLUE, alpha=0.3, linewidth=1)
    inside = [p for p in good if p.individual.score >= low]
    worse = [p for p in good if p.individual.score < low]
    kinds = (
        (inside, [p.individual.score for p in inside], "o", BLUE, "trained"),
        (worse, [low] * len(worse), "v", BLUE, "worse than shown"),
        ([p for p in points if not p.individual.ok and p.individual.rejection is None], None, "x", ORANGE, "failed"),
        ([p for p in points if p.individual.rejection is not None], None, "|", GREY, "rejected"),
    )
    for members, y, mark, colour, label in kinds:
        if members:
            heights = y if y is not None else [low] * len(members)
            edge = "white" if mark in "ov" else colour
            label = f"{label} ({len(members)})" + ", 95 % intervals" * (mark == "o" and bool(bars))
            ax.plot([x(p) for p in members], heights, linestyle="none", marker=mark, color=colour, markersize=6,
                    label=label, clip_on=False, zorder=3, markeredgecolor=edge)  # fmt: skip
    if good:
        best: list[float] = []
        for p in good:
            best.append(max(p.individual.score, best[-1] if best else -math.inf))
        label = f"best so far: {precise(best[-1])}"
        xs, ys = [*map(x, good), x(points[-1])], [*best, best[-1]]
        ax.step(xs, [max(y, low) for y in ys], where="post", color=BLUE, linewidth=1.6, label=label, zorder=2)
    if by_steps:
        ax.set_xlabel("environment steps of all agents")
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    else:
        ax.set_xlabel("candidates")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
