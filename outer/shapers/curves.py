"""Picture of an evaluation of shapers: every candidate's true score during training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Sequence

from envolve.outer.names import HUMAN
from envolve.outer.reporting.report import precise
from envolve.outer.reporting.style import COLOURS, GREY, new_figure, thousands
from envolve.outer.shapers.report import Outcome

MOST_NAMED = 20  # in the legend


def curves(path: Path, ranking: Sequence[Outcome], title: str, unit: str) -> None:
    """Writes a PNG (150 dpi): the true score in training against environment steps. The best have colours, the others
    are grey; the human's shapers are dashed; a cross marks a failed candidate."""
    figure, (ax,) = new_figure(8, 4.5)
    colours = iter(COLOURS)
    for o in ranking:
        x = [s for s, y in zip(o.steps, o.score_curve) if math.isfinite(y)]
        y = [y for y in o.score_curve if math.isfinite(y)]
        human = o.name == HUMAN
        colour = "black" if human else GREY if o.failure else next(colours, GREY)
        named = human or o.failure is not None or colour != GREY
        label = o.name if math.isnan(o.score) else f"{o.name}: {precise(o.score)}"
        label = f"{o.name}: failed" if o.failure else label
        ax.plot(
            x,
            y,
            color=colour,
            label=label if named else None,
            linestyle="--" if human else "-",
            linewidth=1.6 if named and not o.failure else 0.8,
            marker="o" if 0 < len(x) < 3 else None,
            markersize=3,
            zorder=3 if human else 2 if named else 1,
        )
        if o.failure and x:
            ax.plot(x[-1:], y[-1:], color=GREY, marker="x", markersize=7, linestyle="none")
    thousands(ax.xaxis)
    ax.set_xlabel("environment steps per agent")
    ax.set_ylabel(f"score per training step, {unit}")
    ax.set_title(title, fontsize=11)
    handles, labels = ax.get_legend_handles_labels()
    handles, labels = handles[:MOST_NAMED], labels[:MOST_NAMED]  # failed candidates come last; there may be many
    ax.legend(
        handles,
        labels,
        fontsize=7,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        frameon=False,
        title=f"name: true score of the final policy, {unit}",
        title_fontsize=7,
    )
    figure.savefig(path, format="png")
