"""All unseen agents, side by side in processes, and what they say together.

A finished agent is a line of ``unseen.jsonl`` in the run's folder. A report that goes on trains the others; its figures
do not depend on the number of processes, nor on when it was stopped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table

from envolve.agents import peers
from envolve.core.files import TABLE_BYTES, read_plain
from envolve.core.interrupt import deaf_children
from envolve.core.pool import pool
from envolve.core.statistics import interval, within
from envolve.envs.worlds.file import write_atomic
from envolve.outer.auto.report_plan import ReportPlan
from envolve.outer.auto.sentence import Figure, Findings
from envolve.outer.auto.unseen import MODEL, RANDOM, REAL, REAL_10X, WORLD, UnseenAgent, related, train_one
from envolve.outer.checkpoint import RunError
from envolve.outer.reporting.display import LiveDisplay, bar, columns
from envolve.outer.reporting.report import duration, number
from envolve.outer.search.nes import UNSEEN, fresh_seeds

FILE = "unseen.jsonl"
PLACES = (WORLD, REAL, REAL_10X)
RANDOM_TESTS = 20  # episodes with random actions, at least


def jobs_of(run_dir: Path, plan: ReportPlan, seed: int, world: str = MODEL) -> list[UnseenAgent]:
    """All agents, the longest of the last ones first. world: the file in run_dir that they train in."""
    seeds = fresh_seeds(seed, UNSEEN, plan.agents).tolist()
    jobs = [UnseenAgent(str(run_dir), RANDOM, REAL, 0, seed % 2**31, max(RANDOM_TESTS, plan.tests), plan.library)]
    order = sorted(plan.learners, key=_length) if plan.library else plan.learners
    for where in plan.places:
        for learner in order:
            steps = plan.steps_at(learner, where)
            if plan.library:
                steps = peers.whole_rollouts(learner, steps)
            jobs += [
                UnseenAgent(str(run_dir), learner, where, steps, int(s) % 2**31, plan.tests, plan.library, world)
                for s in seeds[: plan.agents_at(learner, where)]
            ]
    return jobs


def _length(learner: str) -> int:
    """Rank of a learner of Stable-Baselines3 among those that take longest."""
    return ("sac", "td3", "ppo", "a2c", "dqn").index(peers.plain(learner))


# --------------------------------------------------------------------------------------------------- finished agents


def finished(path: Path) -> list[dict[str, Any]]:
    """Rows of the file; the last line may be torn. Raises RunError for anything else that is no row."""
    if not path.exists():
        return []
    lines = read_plain(path, TABLE_BYTES).decode(errors="replace").split("\n")
    rows = []
    for i, line in enumerate(lines):
        try:
            row = json.loads(line) if line else None
        except ValueError:
            if i < len(lines) - 1:
                raise RunError(f"{path}:{i + 1}: found no JSON, expected a row of an agent") from None
            break
        if row is None:
            continue
        if not isinstance(row, dict) or not isinstance(row.get("key"), str):
            raise RunError(f"{path}:{i + 1}: found {line[:80]}, expected a row of an agent")
        rows.append(row)
    return rows


def append(path: Path, row: dict[str, Any]) -> None:
    """Adds a row. A torn line before it is cut off first."""
    text = read_plain(path, TABLE_BYTES) if path.exists() else b""
    clean = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
    write_atomic(str(path), text[: text.rfind(b"\n") + 1] + (json.dumps(clean) + "\n").encode())


# ---------------------------------------------------------------------------------------------------------- training


def guarded(job: UnseenAgent) -> dict[str, Any]:
    """``train_one``; what the environment raises is the reason why this agent failed."""
    began = time.monotonic()
    try:
        return train_one(job)
    except Exception as e:
        said = f"{type(e).__name__}: {(str(e).splitlines() or [''])[0]}"[:300]
        return {"key": job.key, "learner": job.learner, "where": job.where, "seed": job.seed, "return": math.nan,
                "test_returns": [], "train_steps": 0, "real_steps": 0, "test_steps": 0, "failed": said,
                "seconds": time.monotonic() - began}  # fmt: skip


def train_all(jobs: Sequence[UnseenAgent], path: Path, workers: int, console: Console) -> list[dict[str, Any]]:
    """Rows of all jobs, in their order; those that ``path`` has are not trained again. Raises RunError."""
    rows = {row["key"]: row for row in finished(path)}
    left = [job for job in jobs if job.key not in rows]
    with AgentTable(jobs, console) as table:
        for job in jobs:
            if job.key in rows:
                table.add(rows[job.key])
        if left:
            with pool(min(workers, len(left))) as processes:
                for row in _trained(processes, left):
                    append(path, row)
                    rows[row["key"]] = row
                    table.add(row)
    return [rows[job.key] for job in jobs]


def _trained(processes: ProcessPoolExecutor, jobs: Iterable[UnseenAgent]) -> Iterator[dict[str, Any]]:
    with deaf_children():  # the first ones start the processes
        waiting: set[Future[dict[str, Any]]] = {processes.submit(guarded, job) for job in jobs}
    while waiting:
        done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
        for future in done:
            try:
                yield future.result()
            except BrokenProcessPool:
                raise RunError("the process of an unseen agent ended (does the environment crash?)") from None


class AgentTable(LiveDisplay):
    """Means so far, by learner and place."""

    def __init__(self, jobs: Sequence[UnseenAgent], console: Console) -> None:
        super().__init__("unseen agents, mean return on the real environment", console)
        self.total, self.rows = len(jobs), list[dict[str, Any]]()
        self.learners = list(dict.fromkeys(j.learner for j in jobs if j.learner != RANDOM))

    def add(self, row: dict[str, Any]) -> None:
        """An agent is finished."""
        with self.lock:
            self.rows.append(row)
        value = row["failed"] or f"return {number(_number(row['return']))}"
        line = f"agent {len(self.rows)}/{self.total}  {row['learner']} {row['where']}  {value}"
        line += f"  {row['train_steps']:,} steps  {row['seconds']:.0f} s"
        self._show(line if row["learner"] in self.learners else None)

    def _parts(self) -> list[RenderableType]:
        done = f"agent {len(self.rows)}/{self.total}"
        top = bar(len(self.rows), self.total, done, f"elapsed {duration(time.monotonic() - self.began)}")
        table = columns(("agent", *(title_of(p) for p in PLACES)))
        for learner in self.learners:
            cells = []
            for place in PLACES:
                found = [_number(r["return"]) for r in self.rows if (r["learner"], r["where"]) == (learner, place)]
                known = [x for x in found if math.isfinite(x)]
                cells.append(f"{number(float(np.mean(known)))} ({len(found)})" if known else "-")
            table.add_row(learner, *cells)
        return [top, table]


def title_of(place: str) -> str:
    """Heading of a column."""
    return {WORLD: "in the world", REAL: "real, same steps", REAL_10X: "real, ten times"}[place]


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


# ----------------------------------------------------------------------------------------------------------- figures


def figure(
    rows: list[dict[str, Any]],
    values: list[float] | None = None,
    bounds: tuple[float, float] | None = None,
    floor: float = math.nan,
) -> Figure:
    """Mean and 95 % interval over agents. values: instead of their returns; bounds: worst and best possible return;
    floor: the return that a failed agent counts with, if any other did not fail. The mean of the others would be too
    good."""
    found = [_number(r["return"]) for r in rows] if values is None else values
    failed = sum(not math.isfinite(x) for x in found)
    counted = [x if math.isfinite(x) else floor for x in found]
    counted = [x for x in counted if math.isfinite(x)] if failed < len(found) else []
    ends: tuple[float, float] | None = None
    if len(counted) > 1:
        low, high = within(*interval(counted), bounds)
        ends = None if math.isnan(low) else (low, high)
    steps = int(np.mean([r["train_steps"] for r in rows])) if rows else 0
    return Figure(float(np.mean(counted)) if counted else math.nan, ends, steps, len(found), failed)


def findings(
    rows: list[dict[str, Any]],
    learners: Iterable[str],
    evolution_steps: int | None,
    bounds: tuple[float, float] | None = None,
    inner: Collection[str] = (),
) -> Findings:
    """Figures of all rows. A failed agent counts as a random one. bounds: worst and best possible return, if they are
    known; inner: the learners that the world evolved with."""
    chance = [r for r in rows if r["learner"] == RANDOM]
    random = figure(chance, [x for r in chance for x in r["test_returns"]], bounds)

    def of(learner: str, place: str) -> Figure:
        own = [r for r in rows if (r["learner"], r["where"]) == (learner, place)]
        return figure(own, bounds=bounds, floor=random.mean)

    by = {place: {k: of(k, place) for k in learners} for place in PLACES}
    kin = frozenset(k for k in by[WORLD] if related(k, inner))
    return Findings(random, by[WORLD], by[REAL], by[REAL_10X], evolution_steps, kin)


def as_json(found: Findings) -> dict[str, Any]:
    """``unseen.<agent>.<place>``, ready for JSON."""
    places = {WORLD: found.world, REAL: found.real, REAL_10X: found.real_10x}
    return {k: {place: plain_figure(figures[k]) for place, figures in places.items()} for k in found.world}


def plain_figure(f: Figure) -> dict[str, Any]:
    """One figure, ready for JSON."""
    return {
        "mean_return": None if math.isnan(f.mean) else f.mean, "interval": None if f.interval is None else
        list(f.interval), "train_steps": f.steps, "agents": f.agents, "failed": f.failed,
    }  # fmt: skip


def table_of(found: Findings, title: str) -> Table:
    """The closing table."""
    table = Table(title=title, title_justify="left")
    table.add_column("agent")
    places = {WORLD: found.world, REAL: found.real, REAL_10X: found.real_10x}
    places = {place: figures for place, figures in places.items() if any(f.agents for f in figures.values())}
    for place, figures in places.items():
        steps = {f.steps for f in figures.values() if f.steps}
        many = " to ".join(f"{s:,}" for s in sorted({min(steps), max(steps)})) if steps else "-"
        table.add_column(f"{title_of(place)}\n{many} steps", justify="right")
    for learner in found.world:
        name = f"{learner} *" if learner in found.kin else learner
        table.add_row(name, *(_cell(figures[learner]) for figures in places.values()))
    table.add_row(RANDOM, *(_cell(found.random) if place == REAL else "" for place in places))
    return table


def _cell(f: Figure) -> str:
    ends = "" if f.interval is None else f" [{number(f.interval[0])}, {number(f.interval[1])}]"
    failed = f", {f.failed} of {f.agents} failed" if f.failed else ""
    return ("-" if math.isnan(f.mean) else f"{number(f.mean)}{ends}") + failed


def real_steps(rows: list[dict[str, Any]], measuring: int, evolution: int | None) -> dict[str, int | None]:
    """Steps on the real environment, by what they were for. evolution: None where it is not known."""
    in_world = [r for r in rows if r["where"] == WORLD]
    on_real = [r for r in rows if r["where"] != WORLD]
    return {
        "measuring": measuring, "evolution": evolution,
        "tests": sum(r["test_steps"] for r in in_world),
        "baselines": sum(r["real_steps"] + r["test_steps"] for r in on_real),
    }  # fmt: skip
