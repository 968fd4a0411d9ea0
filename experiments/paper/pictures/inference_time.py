"""Figure: time of a step of the task, of an SE, of a reward network, one at a time and many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envolve.experiments.paper.common.drawing import LABEL_SIZE, DataFile, Drawing, Need, panels, spread
from envolve.experiments.paper.pictures.se import CONFIGS
from envolve.outer.reporting.style import BLUE, ORANGE, legend_above

TITLE = "time per step of the task, an SE and a reward network"
NEEDS: dict[str, tuple[Need, ...]] = {
    task: (DataFile("inference_time", task, ("inference_time.py", config)),) for task, config in CONFIGS.items()
}
KINDS = {"real": "task", "se": "SE", "rn": "reward network"}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [only] = data
    figure, (ax,) = panels(6.0, 3.8)
    batch = only.settings.get("batch")
    sentences = []
    for shift, (what, words, colour) in enumerate(
        (("single", "one at a time", ORANGE), ("batched", f"{batch:,} at once", BLUE))
    ):
        for place, (kind, name) in enumerate(KINDS.items()):
            times = [1000 * t for t in only.series[f"{kind} {what}"]["ms_per_step"]]
            middle, low, high = spread(times)
            x, error = place + 0.36 * (shift - 0.5), [[middle - low], [high - middle]]
            look: dict[str, Any] = {"fmt": "os"[shift], "color": colour, "markersize": 5, "capsize": 5}
            look["label"] = "" if place else words
            ax.errorbar(x, middle, error, **look)  # no bar: a logarithmic axis has no zero to begin at
            ax.annotate(f"{middle:.3g}", (x, high), (0, 6), textcoords="offset points", ha="center", fontsize=8)
            ends = f" [{low:.3g}, {high:.3g}]" if low < high else ""  # equal times tell none
            sentences.append(f"{name}, {words} {middle:.3g}{ends} ({len(times)} repeats)")
    ax.set_yscale("log")
    ax.margins(y=0.15)
    ax.set_xticks(range(len(KINDS)), list(KINDS.values()), fontsize=LABEL_SIZE)
    ax.set_ylabel("time per step, µs", fontsize=LABEL_SIZE)
    ax.set_title(only.task, fontsize=11, loc="left")
    ax.set_xlim(-0.6, len(KINDS) - 0.4)
    legend_above(ax)
    device = str(only.settings.get("device")).upper()
    caption = (
        f"Time of a step in PyTorch on the {device}, in microseconds, interquartile means with 95 % intervals: "
        + "; ".join(sentences)
        + "."
    )
    return Drawing(figure, caption)
