"""Figure: time of a step of the task, of an SE, of a reward network, one at a time and many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envolve.experiments.paper.common.drawing import LABEL_SIZE, DataFile, Drawing, Need, panels, spread
from envolve.experiments.paper.pictures.se import CONFIGS
from envolve.outer.reporting.plots import BLUE, ORANGE

TITLE = "the time that a step of the task, an SE and a reward network takes"
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
        (("single", "one at a time", ORANGE), ("batched", f"{batch} at once", BLUE))
    ):
        for place, (kind, name) in enumerate(KINDS.items()):
            times = [1000 * t for t in only.series[f"{kind} {what}"]["ms_per_step"]]
            middle, low, high = spread(times)
            x, error = place + 0.36 * (shift - 0.5), [[middle - low], [high - middle]]
            ax.bar(x, middle, 0.34, color=colour, alpha=0.85, yerr=error, capsize=3, label="" if place else words)
            ax.annotate(f"{middle:.3g}", (x, high), (0, 3), textcoords="offset points", ha="center", fontsize=8)
            ends = f" [{low:.3g}, {high:.3g}]" if low < high else ""  # equal times tell none
            sentences.append(f"{name}, {words} {middle:.3g}{ends} ({len(times)} repeats)")
    ax.set_yscale("log")
    ax.margins(y=0.15)
    ax.set_xticks(range(len(KINDS)), list(KINDS.values()), fontsize=LABEL_SIZE)
    ax.set_ylabel("microseconds per step", fontsize=LABEL_SIZE)
    ax.set_title(only.task, fontsize=11, loc="left")
    figure.legend(loc="outside upper left", ncols=2, fontsize=8, frameon=False)
    caption = (
        f"Time of a step in PyTorch on {only.settings.get('device')}, microseconds, interquartile means with 95 % "
        "intervals: " + "; ".join(sentences) + "."
    )
    return Drawing(figure, caption)
