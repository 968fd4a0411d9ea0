"""Next states and rewards: in an SE during training, in the task, and as the SE answers (figures 4 and 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envolve.experiments.paper.common.drawing import LABEL_SIZE, DataFile, Drawing, Need, counted, in_words, panels
from envolve.experiments.paper.common.series import learner
from envolve.experiments.paper.pictures.noise_threshold import OUTPUTS
from envolve.outer.reporting.style import BLUE, GREEN, ORANGE, legend_above

TITLE = "figures 4 and 8: next states and rewards in an SE and in the task"
COMMAND = "histograms.py"
NEEDS: dict[str, tuple[Need, ...]] = {
    "CartPole-v0": (DataFile("histograms", "CartPole-v0", (COMMAND,)),),
    "Acrobot-v1": (DataFile("histograms", "Acrobot-v1", (COMMAND, "default_config_acrobot_syn_env.yaml")),),
}
SOURCES = {"SE in training": BLUE, "task in tests": ORANGE, "SE, asked as in tests": GREEN}
UNITS = {  # of the outputs that have one
    "position": "m", "velocity": "m/s", "pole angle": "rad", "angular velocity": "rad/s", "velocity 1": "rad/s",
    "velocity 2": "rad/s",
}  # fmt: skip
BINS, TAIL = 40, 0.005  # what lies beyond these quantiles of all values is not shown


def draw(variant: str, data: Sequence[Any]) -> Drawing:
    [only] = data
    states = {label: np.array(only.series[label]["next_state"], dtype=np.float64) for label in SOURCES}
    count = states["SE in training"].shape[1]
    names = OUTPUTS.get(only.task) or tuple(f"state {i}" for i in range(count))
    columns = 4 if count > 4 else count + 1
    rows = -(-(count + 1) // columns)
    constant: list[str] = []
    figure, axes = panels(2.3 * columns + 0.4, 2.3 * rows + 0.6, rows, columns)
    for i, ax in enumerate(axes[: count + 1]):
        rewards = {label: np.array(only.series[label]["reward"], dtype=np.float64) for label in SOURCES}
        values = {label: states[label][:, i] for label in SOURCES} if i < count else rewards
        axis = f"next {names[i]}" if i < count else "reward"
        low, high = np.quantile(np.concatenate(list(values.values())), [TAIL, 1 - TAIL])
        edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
        for label, colour in SOURCES.items():
            if np.ptp(values[label]) == 0:  # a bar of all steps would flatten the others
                ax.axvline(values[label][0], color=colour, linewidth=2.4, alpha=0.8)
                constant.append(f"{label}: {axis} {values[label][0]:.4g}")
                continue
            shares = np.histogram(values[label], edges)[0] / len(values[label])
            ax.stairs(shares, edges, color=colour, fill=True, alpha=0.18)
            ax.stairs(shares, edges, color=colour, linewidth=1.2, label=label)
        unit = UNITS.get(names[i]) if i < count else None
        ax.set_xlabel(axis + f", {unit}" * bool(unit), fontsize=LABEL_SIZE)
        if i % columns == 0:
            ax.set_ylabel("share of steps", fontsize=LABEL_SIZE)
    for ax in axes[count + 1 :]:
        ax.set_axis_off()
    legend_above(axes[0])
    agents = only.series["agents"]["return"]
    shown = ", ".join(f"{only.series[label]['steps'][0]:,} ({label})" for label in SOURCES)
    always = f" Vertical lines, always the same value: {'; '.join(constant)}." * bool(constant)
    agent = learner(only.settings.get("agent"))
    caption = (
        f"Steps that {agent} agents see: in an SE for {only.task} during training, in the task "
        f"during tests, and what the SE answers to the tests' states and actions; {counted(agents)} in one SE; steps: "
        f"{shown}, of which at most {len(states['SE in training']):,} of a kind are shown, without the "
        f"{100 * TAIL:g} % of smallest and of largest values.{always} Test return, "
        f"interquartile mean and 95 % interval: {in_words(agents)}."
    )
    return Drawing(figure, caption)
