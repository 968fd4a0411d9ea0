"""Comparison of agents in evolved worlds with agents on the task: the table, the verdicts, the prices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from rich.table import Table

from envolve.core.statistics import AgentRuns, of_worlds
from envolve.envs.task import Task, mark_of
from envolve.envs.worlds.file import WorldFile
from envolve.experiments.paper.common.data import Series
from envolve.experiments.paper.common.drawing import in_words
from envolve.experiments.paper.common.training import FIRST_TEST, RULE_FIRES
from envolve.outer.reporting.comparison import failures, price_lines, random_return, ratio_sentence, side, why_not
from envolve.outer.reporting.display import wide_console
from envolve.outer.reporting.report import number


def prices(series: dict[str, list[WorldFile]]) -> dict[str, Any]:
    """Settings for a data file: series -> the real steps that the evolution of each of its worlds took, None where that
    was not recorded."""
    return {label: {w.path: w.evolution_steps for w in worlds} for label, worlds in series.items()}


def evolution_words(spent: dict[str, int | None]) -> str:
    """Statistics of one series."""
    known = [n for n in spent.values() if n is not None]
    if not spent:
        return "-"
    return f"{sum(known):,}" if len(known) == len(spent) else "unknown"


def summary(series: Series, task: Task, spent: dict[str, dict[str, int | None]]) -> None:
    """A row per series, and what may be said of the worlds' beside the task's. spent: see ``prices``."""
    curves = any(FIRST_TEST in q for q in series.values())
    table = Table(title=f"{task.name}, agents tested on the task", title_justify="left")
    table.add_column("", no_wrap=True)
    mark = mark_of(task.solved_reward)
    below = ["failures"] if mark is None else [f"failures (below {number(mark)})"]
    both = ["solved, first test", "solved, rule fires"] * curves
    for title in ("agents", *below, "steps", "return", "IQM", *both, "evolution, real steps"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, q in series.items():
        worlds, count = q.get("world", []), len(q["return"])
        fine = [r if not why else math.nan for r, why in zip(q["return"], q["failed"])]
        means = [r for r in of_worlds(fine, worlds) if math.isfinite(r)]
        cells = [str(count), f"{failures(fine, mark)}", number(float(np.mean(q["train_steps"])))]
        cells += [number(float(np.mean(means))), in_words(fine, worlds)] if means else ["-", "-"]
        for key in (FIRST_TEST, RULE_FIRES) if curves else ():
            if key not in q:  # agents in SEs are not tested while they train
                cells.append("-")
                continue
            reached = [s for s in q.get(key, []) if math.isfinite(s)]
            median = number(float(np.median(reached))) if reached else "-"
            cells.append(f"{median} ({len(reached)} of {count})")
        table.add_row(name, *cells, evolution_words(spent.get(name, {})))
    wide_console().print(table)
    print("IQM: interquartile mean with its 95 % interval, of several worlds over their means.")
    print("Evolution: real steps of all the worlds together.")
    if curves:
        print(
            "Solved: median steps of those that were, by ten test returns in a row with a mean that solves: to the "
            "first of these tests that solves, and to the last, when the rule fires."
        )


def verdicts(
    series: Series, task: Task, pairs: dict[str, str], kind: str, spent: dict[str, dict[str, int | None]]
) -> None:
    """Verdicts on agents in worlds compared with agents on the task. pairs: series of worlds -> that on the task."""
    mark = mark_of(task.solved_reward)
    floor = random_return(task)
    for name, beside in pairs.items():
        steps = RULE_FIRES if RULE_FIRES in series[name] else "train_steps"
        runs = []
        for q in (series[name], series[beside]):
            # an agent that did not solve the task has needed all its steps, and more
            needed = [s if math.isfinite(s) else float(n) for s, n in zip(q[steps], q["train_steps"])]
            runs.append(AgentRuns(of_worlds(q["return"], q["world"]), of_worlds(needed, q["world"])))
        world, real = (side(r, floor, mark) for r in runs)
        reason = why_not(world, real, floor, mark, number)
        said = f"No comparison of steps: {reason}." if reason else ratio_sentence(world, real, number)
        each = list(spent.get(name, {}).values())
        known = [n for n in each if n is not None]
        mean = round(sum(known) / len(known)) if known and len(known) == len(each) else None
        lines = [said, *price_lines(kind, mean, world, real, not reason, number)]
        print(f"{name} beside {beside} (evolution: mean of a world): " + " ".join(line for line in lines if line))
