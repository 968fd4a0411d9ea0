"""Figure like se.py, with agents that all have the configured hyperparameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envolve.experiments.paper.common.drawing import DataFile, Drawing, Need
from envolve.experiments.paper.pictures import se

TITLE = "the same as se, but all agents have the configured hyperparameters"
NEEDS: dict[str, tuple[Need, ...]] = {
    task: (DataFile("generalization_gap", task, ("generalization_gap.py", config), "se"),)
    for task, config in se.CONFIGS.items()
}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    out = se.draw(variant, data)
    return Drawing(out.figure, "All agents have the hyperparameters of the configuration. " + out.caption)
