"""Figure: the eight score transforms of the same scores (outer/search/transforms.py). Needs no data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.drawing import LABEL_SIZE, TITLE_SIZE, Drawing, Need, panels
from envolve.outer.reporting.style import BLUE, GREY
from envolve.outer.search.transforms import score_transform

TITLE = "the eight score transforms, applied to the same sixteen scores"
NEEDS: dict[str, tuple[Need, ...]] = {"": ()}
NAMES = (
    "0  linear", "1  rank", "2  NES", "3  NES, unnormalised", "4  single best", "5  single better",
    "6  all better, largest 1", "7  all better, sum 1",
)  # fmt: skip
SCORES = np.array([2, 4, 5, 8, 12, 13, 20, 26, 27, 33, 41, 48, 56, 71, 74, 100], dtype=np.float64)
MEAN = 30.0  # score of the unperturbed world


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    figure, axes = panels(9.2, 4.8, 2, 4)
    for kind, (ax, name) in enumerate(zip(axes, NAMES)):
        weights = score_transform(SCORES, kind, MEAN)
        ax.axhline(0, color=GREY, linewidth=0.8)
        ax.axvline(MEAN, color=GREY, linewidth=1, linestyle="--")
        ax.vlines(SCORES, 0, weights, color=BLUE, linewidth=1.2, alpha=0.5)
        ax.scatter(SCORES, weights, color=BLUE, s=14, zorder=3)
        ax.set_title(name, fontsize=TITLE_SIZE, loc="left")
        ax.set_ylim(-0.35, 1.08)
        ax.set_xlim(-4, 104)
        if kind % 4 == 0:
            ax.set_ylabel("weight in the update", fontsize=LABEL_SIZE)
        if kind >= 4:
            ax.set_xlabel("score", fontsize=LABEL_SIZE)
    caption = (
        f"Score transforms of the published update, for {len(SCORES)} made-up scores. Dashed: the mean score of the "
        f"unperturbed world, {MEAN:g}, which types 5 to 7 compare with."
    )
    return Drawing(figure, caption)
