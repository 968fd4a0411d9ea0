#!/usr/bin/env python3
"""Draws what learners reach on tasks of continuous control by the number of steps, and in worlds for these tasks.

    python3 benchmarks/worlds/continuous_figure.py                 docs/continuous_control.png
    python3 benchmarks/worlds/continuous_figure.py --table         the same numbers in Markdown

Data are the cells that continuous_control.py wrote into results/continuous_control/<task>/ (committed). Nothing is
computed again.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.common import cells  # noqa: E402
from benchmarks.worlds import continuous_control  # noqa: E402
from envolve.core.statistics import interval  # noqa: E402
from envolve.envs.worlds.file import write_atomic  # noqa: E402
from envolve.experiments.paper.common.drawing import panels  # noqa: E402
from envolve.outer.checkpoint import RunError  # noqa: E402
from envolve.outer.reporting.style import COLOURS  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA = ROOT / "results" / "continuous_control"
TASKS = {
    "pendulum": "Pendulum-v0",
    "mountain_car_continuous": "MountainCarContinuous-v0",
    "swimmer": "Swimmer-v5",
    "hopper": "Hopper-v5",
    "half_cheetah": "HalfCheetah-v5",
    "walker2d": "Walker2d-v5",
}
MORE = {  # in the table alone
    "pendulum_v1": "Pendulum-v1, normalised",
    "swimmer_second": "Swimmer-v5, a second run",
    "hopper_second": "Hopper-v5, a second run",
    "walker2d_second": "Walker2d-v5, a second run",
    "reacher": "Reacher-v5",
    "half_cheetah_ars": "HalfCheetah-v5, experts of random search",
    "half_cheetah_balanced": "HalfCheetah-v5, balanced contexts",
    "half_cheetah_evolved": "HalfCheetah-v5, evolved in normalised units",
    "half_cheetah_budget": "HalfCheetah-v5, evolved with varied budgets",
    "half_cheetah_best_paid": "HalfCheetah-v5, evolved with varied budgets and the best-paid action",
    "half_cheetah_small_noise": "HalfCheetah-v5, the same with small perturbations",
    "hopper_budget": "Hopper-v5, evolved with varied budgets",
    "hopper_best_paid": "Hopper-v5, evolved with varied budgets and the best-paid action",
    "walker2d_balanced": "Walker2d-v5, balanced contexts",
    "walker2d_evolved": "Walker2d-v5, evolved in normalised units",
    "walker2d_budget": "Walker2d-v5, evolved with varied budgets",
    "walker2d_best_paid": "Walker2d-v5, evolved with varied budgets and the best-paid action",
    "walker2d_td3": "Walker2d-v5, evolved with TD3",
}
DRAWN = {"ppo": "PPO", "td3": "TD3", "sac": "SAC", "ddpg": "DDPG"}


def on_task(rows: list[cells.Row], learner: str) -> list[tuple[int, float, float, float]]:
    """(steps, mean over agents, low, high) of agents on the task, by steps."""
    own = [r for r in rows if (r["place"], r["learner"]) == (continuous_control.TASK, learner)]
    agents: dict[int, list[float]] = {}
    for row in own:
        agents.setdefault(row["steps"], []).extend(row["returns"])
    return [(steps, *of_means(agents[steps])) for steps in sorted(agents)]


def in_worlds(rows: list[cells.Row], learner: str) -> tuple[int, float, float, float] | None:
    """(steps, mean over worlds, low, high) of the agents' means in each distilled world; None: none was trained
    there."""
    own = [r for r in rows if (r["place"], r["learner"]) == ("distilled", learner)]
    if not own:
        return None
    return (max(r["steps"] for r in own), *of_means([float(np.mean(r["returns"])) for r in own]))


def of_means(values: list[float]) -> tuple[float, float, float]:
    """Mean and the ends of its 95 % interval, which are the mean itself of fewer than two values or of equal ones."""
    mean = float(np.mean(values))
    low, high = interval(values) if len(values) > 1 else (np.nan, np.nan)
    return (mean, mean, mean) if np.isnan(low) else (mean, low, high)


def picture(data: dict[str, list[cells.Row]]) -> bytes:
    """A PNG with a panel for each task: lines on the task, diamonds in its worlds."""
    figure, axes = panels(11, 6, 2, 3)
    for ax, (name, task) in zip(axes, TASKS.items()):
        rows = data[name]
        for i, (learner, words) in enumerate(DRAWN.items()):
            color = COLOURS[i]
            curve = on_task(rows, learner)
            if curve:
                at, means, lows, highs = (np.array(x) for x in zip(*curve))
                ax.plot(at, means, "o-", color=color, markersize=3.5, linewidth=1.4, label=words)
                ax.fill_between(at, lows, highs, color=color, alpha=0.12, linewidth=0)
            world = in_worlds(rows, learner)
            if world:
                steps, mean, low, high = world
                where = steps * 0.55 * 1.12**i  # beside each other, left of 10,000
                ax.errorbar([where], [mean], [[mean - low], [high - mean]], fmt="D", color=color, markersize=7,
                            markeredgecolor="black", markeredgewidth=0.8, capsize=3, linewidth=1)  # fmt: skip
        ax.set_xscale("log")
        ax.set_title(task, fontsize=10)
        ax.set_xlabel("training steps", fontsize=9)
    axes[0].set_ylabel("return on the task", fontsize=9)
    axes[3].set_ylabel("return on the task", fontsize=9)
    axes[5].legend(fontsize=8, loc="upper left")
    return png(figure)


def table(data: dict[str, list[cells.Row]]) -> str:
    """Every cell in Markdown, task by task."""
    names = {**TASKS, **MORE}
    return "\n\n".join(f"**{names[name]}**\n\n{continuous_control.table(DATA / name)}" for name in data)


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def command(
    script: str,
    doc: str | None,
    out: Path,
    drawn: Callable[[], bytes],
    written: Callable[[], str],
    argv: list[str] | None,
) -> int:
    """The command line of a script that draws a figure of committed cells, or prints them -> its exit code."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=out, help="the picture")
    parser.add_argument("--table", action="store_true", help="print the table of what is there and stop")
    args = parser.parse_args(argv)
    try:
        if args.table:
            print(written())
        else:
            write_atomic(str(args.out), drawn())
            print(args.out)
    except (RunError, OSError) as e:
        print(f"{script}: {e}", file=sys.stderr)
        return 1
    return 0


def main(argv: list[str] | None = None) -> int:
    def read(names: Iterable[str]) -> dict[str, list[cells.Row]]:
        return {name: cells.results(DATA / name, continuous_control.READ) for name in names}

    out = ROOT / "docs" / "continuous_control.png"
    drawn, written = (lambda: picture(read(TASKS))), (lambda: table(read([*TASKS, *MORE])))
    return command("continuous_figure.py", __doc__, out, drawn, written, argv)


if __name__ == "__main__":
    sys.exit(main())
