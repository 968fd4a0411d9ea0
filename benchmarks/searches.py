#!/usr/bin/env python3
"""Evaluations until solved of every search, over tasks and seeds, with bootstrap intervals.

    python3 benchmarks/searches.py [--out DIR] [--seeds 10] [--budget N] [--only-tasks NAME ...]
    python3 benchmarks/searches.py --out DIR --table            the table of what is there

A cell is one run: a task, a search, a seed. It ends when it is solved or has trained as many agents as --budget says. A
run that ends unsolved is called censored: all that is known is that it takes more. Each finished cell is one file in
--out. Ctrl-C leaves the open cell's checkpoint: the same command goes on with it, and ends in the same figures.

An evaluation is one agent that was trained and tested, those that score the centre and confirm it among them. SEs and
bandits are solved when fresh agents confirm it, as the run itself demands. A Cliff RN run does not end when it is
solved. Here it counts as solved in the first generation whose unperturbed RN scores at least -200: agents that solve
the task within 200 steps, which is what the paper published. That is not confirmed, so luck helps, every search alike.

Every search has the noise_std of the task's configuration, and its own settings' defaults; nes has the configuration's
recipe. Nothing was tuned for the others. All have as many perturbed worlds per generation.
Seeds come first: all cells of seed 0, then those of seed 1.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import cells  # noqa: E402
from envolve.core.files import TABLE_BYTES, read_plain  # noqa: E402
from envolve.outer.config.load import Config, load_config  # noqa: E402
from envolve.outer.run import Run  # noqa: E402
from envolve.outer.search.searches import worlds_of  # noqa: E402


class Task(NamedTuple):
    """A configuration, what is set in it, the score that solves it if the run itself does not say, and the budget."""

    config: str
    overrides: tuple[str, ...] = ()
    solved_score: float | None = None
    budget: int = 6000  # evaluations


TASKS = {
    "cartpole_se": Task("default_config_cartpole_syn_env.yaml", budget=9000),
    "cartpole_bandit": Task("default_config_cartpole_contextual_bandit.yaml"),
    "acrobot_bandit": Task("default_config_acrobot_contextual_bandit.yaml"),
    "cliff_rn": Task("default_config_gridworld_reward_env.yaml", ("env_name=Cliff",), -200.0, 57_600),
}
SEARCHES = ("nes", "snes", "sep_cma", "cma", "openai_es", "random")
RESAMPLES, CONFIDENCE = 10_000, 0.95


class Spent:
    """Evaluations in a run's scores.csv, which is read on from where it was last read."""

    def __init__(self, run_dir: Path, solved_score: float | None) -> None:
        self.path, self.solved_score = run_dir / "scores.csv", solved_score
        self.count = 0  # so far
        self.first: int | None = None  # up to and including the first generation that has solved_score
        self._seen = 0
        self._columns: list[str] = []

    def look(self) -> Spent:
        """Counts what whole generations have written since."""
        text = read_plain(self.path, TABLE_BYTES).decode() if self.path.exists() else ""
        rows = list(csv.reader(text[self._seen :].splitlines()))
        self._seen = len(text)
        if rows and not self._columns:
            self._columns = rows.pop(0)
        generations: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            named = dict(zip(self._columns, row))
            generations.setdefault(named["generation"], []).append(named)
        for members in generations.values():
            self.count += len(members)
            own = [float(m["score"]) for m in members if m["role"] == "orig"]
            if self.first is None and self.solved_score is not None and np.mean(own) >= self.solved_score:
                self.first = self.count
        return self


def overrides_of(task: str, search: str, seed: int) -> list[str]:
    base = load_config(ROOT / TASKS[task].config, TASKS[task].overrides)
    section = base.data["agents"]["gtn"]
    words = [*TASKS[task].overrides, f"seed={seed}", f"agents.gtn.max_iterations={cells.ENDLESS}"]
    words += ["agents.gtn.comparison_agents=0", f"agents.gtn.search={search}"]
    if search not in ("nes", "openai_es"):
        words.append(f"agents.gtn.num_workers={2 * section['num_workers']}")
    if not section["num_orig_evals"]:
        words.append(f"agents.gtn.num_orig_evals={section['num_workers']}")
    return words


def cell(out: Path, task: str, search: str, seed: int, budget: int) -> dict[str, Any]:
    """Runs a cell, or goes on with it -> its figures. Raises KeyboardInterrupt: its checkpoint stays."""
    run_dir = out / "runs" / f"{task}-{search}-{seed}"
    mark = TASKS[task].solved_score
    spent = Spent(run_dir, mark)

    def fresh() -> Config:
        return load_config(ROOT / TASKS[task].config, overrides_of(task, search, seed))

    def enough(run: Run) -> bool:
        return spent.look().first is not None or spent.count >= budget

    run = cells.search(run_dir, fresh, enough, "benchmarks/searches.py")
    spent.look()
    solved = spent.first is not None if mark is not None else run.progress.solved
    evaluations = spent.count if spent.first is None else spent.first
    gtn = run.gtn
    return {
        "task": task, "search": search, "seed": seed, "budget": budget, "solved": solved,
        "evaluations": evaluations, "generations": run.strategy.state.generation, "seconds": run.progress.seconds,
        "best_score": run.progress.best_score, "worlds": worlds_of(search, gtn)[0], "noise_std": gtn.noise_std,
        "restarts": run.strategy.state.restarts,
    }  # fmt: skip


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and percentile bootstrap interval of values [n], infinity where a run is censored."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) == 1:
        return float(x[0]), math.nan, math.nan
    draws = np.random.Generator(np.random.Philox(0)).integers(0, len(x), (RESAMPLES, len(x)))
    with np.errstate(invalid="ignore"):
        medians = np.sort(np.median(x[draws], axis=1))
    tail = (1 - CONFIDENCE) / 2
    low, high = medians[int(tail * RESAMPLES)], medians[min(RESAMPLES - 1, int((1 - tail) * RESAMPLES))]
    return float(np.median(x)), float(low), float(high)


def results(out: Path) -> list[dict[str, Any]]:
    """Finished cells. Raises RunError."""
    return cells.results(
        out, {"task": str, "search": str, "seed": int, "budget": int, "solved": bool, "evaluations": int}
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row per task and search."""
    lines = [
        "| task | search | solved | evaluations to solve, median [95 % bootstrap] | each seed | minutes of one core |",
        "|---|---|---|---|---|---|",
    ]

    def show(value: float, budget: int) -> str:
        return f"> {budget:,}" if math.isinf(value) else f"{value:,.0f}"

    for task in TASKS:
        for search in SEARCHES:
            own = sorted((r for r in rows if (r["task"], r["search"]) == (task, search)), key=lambda r: r["seed"])
            if not own:
                continue
            budget = min(r["budget"] for r in own)
            values = [float(r["evaluations"]) if r["solved"] else math.inf for r in own]
            median, low, high = interval(values)
            spread = "" if math.isnan(low) else f" [{show(low, budget)}, {show(high, budget)}]"
            each = ", ".join(f"{r['evaluations']:,}" if r["solved"] else "censored" for r in own)
            minutes = sum(r.get("seconds", 0.0) for r in own) / 60
            solved = f"{sum(r['solved'] for r in own)} of {len(own)}"
            lines.append(f"| {task} | {search} | {solved} | {show(median, budget)}{spread} | {each} | {minutes:.1f} |")
    return "\n".join(lines)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cells.add_flags(parser, "searches", 10)
    budgets = ", ".join(f"{name} {task.budget}" for name, task in TASKS.items())
    parser.add_argument("--budget", type=int, help=f"evaluations of a cell (default: {budgets})")
    parser.add_argument("--only-tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--only-searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    cells.check_counts(parser, {"--seeds": [args.seeds], "--budget": [args.budget]}, 10**7)
    return cells.finish("searches", args, lambda: work(args), lambda: table(results(args.out)))


def work(args: argparse.Namespace) -> None:
    """All cells that are missing, seeds first."""
    names = [(t, search, s) for s in range(args.seeds) for t in args.only_tasks for search in args.only_searches]

    def run(task: str, search: str, seed: int) -> dict[str, Any]:
        return cell(args.out, task, search, seed, args.budget or TASKS[task].budget)

    def shown(row: dict[str, Any]) -> str:
        return f"{'solved' if row['solved'] else 'censored'}, {row['evaluations']} evaluations"

    def wanted(row: dict[str, Any]) -> dict[str, Any]:  # a larger budget changes nothing for what is solved
        return {} if row["solved"] else {"budget": args.budget or TASKS[row["task"]].budget}

    cells.demand(args.out, wanted)
    cells.work(args.out, names, run, shown)


if __name__ == "__main__":
    sys.exit(main())
