"""The table and the JSON of controls.py."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from envolve.core.statistics import of_worlds, summary
from envolve.envs.task import Task, mark_of
from envolve.envs.worlds.file import write_atomic
from envolve.outer.config.load import environment_info
from envolve.outer.controls.rows import Bench, Row
from envolve.outer.reporting.comparison import return_bounds
from envolve.outer.reporting.display import wide_console
from envolve.outer.reporting.plain import plain
from envolve.outer.reporting.report import number


def figures(row: Row, task: Task) -> dict[str, Any]:
    """Numbers of a row in the table, ready for JSON. Intervals count worlds, experts or searches."""
    values = [v for v in of_worlds(row.returns, [str(w) for w in row.worlds]) if math.isfinite(v)]
    out: dict[str, Any] = {"units": len(row.returns), "failed": sum(not math.isfinite(r) for r in row.returns)}
    if values:
        s = summary(values, bounds=return_bounds(task))
        out |= {"mean_return": s["mean"], "mean_return_interval": s["mean_interval"], "n": len(values)}
        out["solved"] = sum(r >= task.solved_reward for r in row.returns)
    if row.train_steps:
        out["train_steps"] = float(np.mean(row.train_steps))
    return out


def show(bench: Bench, rows: Sequence[Row]) -> None:
    """Text of the table, a description of each row, and the controls that this world cannot have."""
    console = wide_console()
    made = [row for row in rows if not row.why_not]
    table = Table(title=f"{bench.world.env_name}: a world and its controls, tested on the task", title_justify="left")
    table.add_column("", no_wrap=True)
    solved = mark_of(bench.task.solved_reward)
    mark = "solved" if solved is None else f"{number(solved)}\nor more"
    for title in ("n", "training\nsteps", "return,\nmean", mark, "real\nsteps"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in made:
        f = figures(row, bench.task)
        mean = number(f["mean_return"]) if "mean_return" in f else "-"
        if f.get("n", 0) > 1 and f["mean_return_interval"] is not None:
            mean += " [{}, {}]".format(*map(number, f["mean_return_interval"]))
        table.add_row(
            row.name,
            str(len(row.returns)),
            number(f.get("train_steps", math.nan)),
            mean,
            str(f.get("solved", 0)),
            "not known" if row.real_steps is None else f"{row.real_steps:,.0f}",
        )
    console.print(table)
    for row in made:
        lost = sum(not math.isfinite(r) for r in row.returns)
        failed = f"; {lost} failed and are in no figure" if lost else ""
        console.print(f"{row.name}: {row.what}{failed}", highlight=False, soft_wrap=True)
    for row in rows:
        if row.why_not:
            console.print(f"no {row.name}: {row.why_not}", highlight=False, soft_wrap=True)
    console.print(
        "Brackets: 95 % intervals, over worlds where a row has several. Real steps: on the task, to make the row; "
        "tuning and experts are included.",
        highlight=False,
        soft_wrap=True,
    )


def write(path: Path, bench: Bench, rows: Sequence[Row], settings: Mapping[str, Any]) -> None:
    """Writes the JSON file. Raises OSError."""
    content = {
        "experiment": "controls", "task": bench.world.env_name, "kind": bench.world.kind, "bandit": bench.bandit,
        "solved_reward": bench.task.solved_reward, "settings": {k: str(v) for k, v in settings.items()},
        "versions": environment_info(),
        "rows": [{**vars(row), **figures(row, bench.task)} for row in rows],
    }  # fmt: skip
    write_atomic(str(path), (json.dumps(plain(content, "controls"), indent=1) + "\n").encode())
