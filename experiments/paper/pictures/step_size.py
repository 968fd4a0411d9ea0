"""Figure: success and speed of step sizes and score transforms on a gridworld's SE (figure 11)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envolve.experiments.paper.common.data import DataError
from envolve.experiments.paper.common.drawing import LABEL_SIZE, TITLE_SIZE, Drawing, Need, in_words, panels
from envolve.experiments.paper.pictures.score_transforms import NAMES
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.hpo.trial import Record
from envolve.outer.hpo.trial_log import TrialLog
from envolve.outer.reporting.style import GREY

TITLE = "figure 11: generations that a gridworld's SE took, by step size and score transform"
LIMITS = (0.008, 125)  # of the study's step sizes
FOLDER = "gridworld_step_size"
TRANSFORM, STEP = "agents.gtn.score_transform_type", "agents.gtn.step_size"
MIRRORED, DIVIDED = "agents.gtn.mirrored_sampling", "agents.gtn.nes_step_size"


@dataclass
class Study:
    records: list[Record]
    quick: bool


@dataclass(frozen=True)
class StudyFolder:
    """The search that step_size.py ran in <results-dir>/gridworld_step_size[_quick]/."""

    command: tuple[str, ...] = ("step_size.py",)

    def read(self, results_dir: Path) -> Study | None:
        for name, quick in ((FOLDER, False), (f"{FOLDER}_quick", True)):
            try:
                records = TrialLog(results_dir / name).read(repair=False)
            except ConfigError as e:
                raise DataError(str(e)) from None
            if records:
                return Study(records, quick)
        return None


NEEDS: dict[str, tuple[Need, ...]] = {"": (StudyFolder(),)}


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [study] = data
    most = max(r.trial.budget for r in study.records)
    figure, axes = panels(9.6, 4.6, 1, 2)
    sentences = []
    points: Any = None
    for ax, mirrored in zip(axes, (True, False)):
        records = [r for r in study.records if r.trial.values[MIRRORED] is mirrored]
        for divided, marker in ((False, "o"), (True, "^")):
            part = [r for r in records if r.trial.values[DIVIDED] is divided]
            fine = [r for r in part if math.isfinite(r.result.loss)]
            # a row per transform; trials of one row lie a little apart, by their number
            where = [(r.trial.values[STEP], _row(r)) for r in fine]
            points = ax.scatter(
                [x for x, _ in where],
                [y for _, y in where],
                c=[r.result.loss for r in fine],
                cmap="viridis_r",
                vmin=0,
                vmax=most,
                marker=marker,
                s=26,
                linewidths=0.3,
                edgecolors="#333333",
                label="step size divided by the population" if divided else "step size as it is",
            )
            bad = [r for r in part if not math.isfinite(r.result.loss)]
            ax.scatter([r.trial.values[STEP] for r in bad], [_row(r) for r in bad], color=GREY, marker="x", s=18)
        ax.set_xscale("log")
        ax.set_yticks(range(8), NAMES, fontsize=8)
        ax.set_ylim(7.6, -0.6)
        ax.set_xlim(*LIMITS)
        ax.set_xlabel("step size", fontsize=LABEL_SIZE)
        name = "mirrored sampling" if mirrored else "without mirrored sampling"
        ax.set_title(name, fontsize=TITLE_SIZE, loc="left")
        # an unsolved run's loss lies beyond its generations: how far it was from solving the task
        generations = [min(r.result.loss, most) if math.isfinite(r.result.loss) else math.nan for r in records]
        solved = sum(r.result.loss <= most for r in records)
        failed = sum(math.isnan(g) for g in generations)
        sentences.append(
            f"{name[0].upper()}{name[1:]}: {len(records)} runs, {solved} solved{f', {failed} failed' * bool(failed)}, "
            f"generations {in_words(generations)}"
        )
    axes[1].set_yticklabels([])
    handles, labels = axes[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside upper left", ncols=2, fontsize=8, frameon=False)
    handle: Any
    for handle in legend.legend_handles:  # they would have the colour of some trial
        handle.set_array(None)
        handle.set_color(GREY)
    figure.colorbar(points, ax=axes, label="generations until the SE is solved", pad=0.01, aspect=30)
    caption = (
        f"Runs that evolve an SE of a 2 x 2 room with random step sizes, of {most:g} generations at most. "
        "Brackets: 95 % intervals of interquartile means. "
        + ". ".join(sentences)
        + ". The darkest marks: not solved. Crosses: failed."
    )
    return Drawing(figure, caption)


def _row(record: Record) -> float:
    return int(record.trial.values[TRANSFORM]) + (record.trial.id * 7 % 11 - 5) / 16
