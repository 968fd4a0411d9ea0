"""Results of agents of many kinds in evolved worlds and on the task: the numbers that table and figure share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from envolve.envs.task import Task
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.drawing import in_words, mean
from envolve.outer.reporting.display import wide_console

MARKS = {"CartPole-v0": 190.0}


def reached_at(task: Task) -> float:
    """The mean return that counts as reached."""
    return MARKS.get(task.name, task.solved_reward)


def by_world(q: dict[str, list[Any]]) -> dict[str, list[float]]:
    """World -> the returns of its agents, NaN of those that failed."""
    out: dict[str, list[float]] = {}
    for world, value in zip(q["world"], q["return"]):
        out.setdefault(world, []).append(value)
    return out


def share(values: Sequence[float], mark: float) -> str:
    """Number of agents that reach the mark; failed ones do not."""
    return f"{sum(v >= mark for v in values)} of {len(values)}"


def short_names(paths: Sequence[str]) -> list[str]:
    """The folders where worlds lie, by their last part, if that tells them apart."""
    names = [Path(p).parent.name for p in paths]
    return names if len(set(names)) == len(names) and all(names) else list(paths)


def show(series: Series, kinds: Sequence[str], seen: Sequence[str], task: Task, steps: int, mark: float) -> None:
    """A table over all worlds, and one with a column per world."""
    console, goal = wide_console(), f"{mark:g}"
    title = f"{task.name}: test returns after at most {steps:,} steps"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for title in ("", "steps", "mean", "IQM, 95 %", f">= {goal}", f"below {goal}", "of these failed"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    worlds = Table(title="means per world", title_justify="left", box=SIMPLE_HEAD)
    paths = list(dict.fromkeys(p for q in series.values() for p in q.get("world", [])))
    worlds.add_column("")
    for name in short_names(paths):
        worlds.add_column(name, justify="right")
    lines = []
    for kind in kinds:
        title = kind + " (seen)" * (kind in seen)
        for where, words in (("real", "task"), ("worlds", "SEs")):
            q = series[f"{kind} {where}"]
            returns = q["return"]
            below = f"{sum(not v >= mark for v in returns)} of {len(returns)}"
            table.add_row(
                f"{title}, {words}",
                f"{max(q['train_steps']):,}",
                decimal(mean(returns)),
                in_words(returns, q.get("world", [])),
                share(returns, mark),
                below,
                str(sum(bool(why) for why in q["failed"])),
                end_section=where == "worlds",
            )
        means = {path: mean(values) for path, values in by_world(series[f"{kind} worlds"]).items()}
        worlds.add_row(title, *(decimal(means[p]) for p in paths))
        lines.append(f"{kind}: a mean of at least {goal} in {share(list(means.values()), mark)} worlds")
    console.print(table)
    console.print(worlds)
    print("\n".join(lines))
    print("IQM: interquartile mean with its 95 % interval, of several SEs over their means, on the task over agents.")


def decimal(x: float) -> str:
    return f"{x:.1f}" if math.isfinite(x) else "-"
