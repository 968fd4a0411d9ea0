"""What a run tells its user: the live table, TensorBoard events and the closing summary."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outer.display import NotedDisplay
from outer.statistics import AgentRuns, interquartile_mean, summary

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

WORLDS = {"se": "synthetic environment", "rn": "reward network", "shaper": "shaper"}
FILES = (  # what a run leaves in its folder, in the order the summary names it
    ("model.pt", "the evolved world"),
    ("params.yaml", "the evolved numbers of the shaper"),
    ("config.yaml", "the configuration, with versions, git hash and seed"),
    ("scores.csv", "every member of every generation"),
    ("learning_curve.png", "the picture of it"),
)


@dataclass
class GenerationRow:
    """One generation as a user sees it. Generations count from 1. NaN: not measured."""

    generation: int
    score_mean: float  # mean score of the unperturbed world
    score_best: float  # best score in the population
    real_return: float  # agents' mean return on the real task
    train_steps: float  # mean training steps of an agent
    episode_length: float  # mean length of a training episode
    failed: int  # members without a score
    member_steps: int  # environment steps of all members in this generation
    seconds: float  # wall time of this generation

    @property
    def steps_per_second(self) -> float:
        return self.member_steps / self.seconds if self.seconds > 0 else math.nan


def number(value: float) -> str:
    """Four significant digits where they help: 0.1234, 12.3, 195.0, 6,404; '-' for NaN."""
    if math.isnan(value):
        return "-"
    if abs(value) >= 1000 or math.isinf(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def precise(value: float) -> str:
    """Four significant digits, which a ranking needs: 0.1234, 195, 12,345; '-' for NaN."""
    return "-" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """0:07, 12:34 or 1:02:03."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"


class LiveTable(NotedDisplay):
    """A table that follows the run in a terminal; one plain line per generation where the output is none.

    ETA is the time until the last generation: a run that stops when solved ends before.

        with LiveTable(total_generations=200, title="CartPole-v0") as table:
            table.update(GenerationRow(...))
            table.note("restart: world collapsed")
    """

    HISTORY = 8

    def __init__(self, total_generations: int, title: str, console: Console | None = None) -> None:
        super().__init__(title, console or Console())
        self.total = total_generations
        self.rows: deque[GenerationRow] = deque(maxlen=self.HISTORY)
        self.seen, self.seconds = 0, 0.0

    def update(self, row: GenerationRow) -> None:
        with self.lock:
            self.rows.append(row)
            self.seen += 1
            self.seconds += row.seconds
        if self.live:
            self.live.refresh()
        else:
            self._line(
                f"generation {row.generation:>{len(str(self.total))}}/{self.total}"
                f"  score {number(row.score_mean)}  best {number(row.score_best)}"
                f"  real return {number(row.real_return)}"
                f"  train steps {number(row.train_steps)}  episode length {number(row.episode_length)}"
                + (f"  failed {row.failed}" if row.failed else "")
                + f"  {number(row.steps_per_second)} member-steps/s  {self._clock()}"
            )

    def _clock(self) -> str:
        clock = f"elapsed {duration(time.monotonic() - self.began)}"
        if self.rows:
            left = max(0, self.total - self.rows[-1].generation)
            clock += f"  ETA {duration(left * self.seconds / self.seen)}"
        return clock

    def _draw(self) -> RenderableType:
        done = self.rows[-1].generation if self.rows else 0
        top = Table.grid(padding=(0, 2))
        top.add_row(
            ProgressBar(total=max(1, self.total), completed=done, width=24),
            f"generation {done}/{self.total}",
            self._clock(),
        )
        table = Table(box=None, padding=(0, 1), header_style="dim")
        for name in ("gen", "score\nmean", "score\nbest", "real\nreturn", "train\nsteps", "episode\nlength", "failed"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("member-\nsteps/s", justify="right", no_wrap=True)
        table.add_column("\nseconds", justify="right", no_wrap=True)
        for i, r in enumerate(self.rows):
            figures = (r.score_mean, r.score_best, r.real_return, r.train_steps, r.episode_length)
            table.add_row(
                str(r.generation),
                *(number(f) for f in figures),
                str(r.failed) if r.failed else "",
                number(r.steps_per_second),
                number(r.seconds),
                style="bold" if i == len(self.rows) - 1 else "",
            )
        notes = (Text(f"note: {n}", style="yellow") for n in self.notes)
        return Group(Text(self.title, style="bold"), top, table, *notes)


class TensorBoard:
    """The figures of every generation as TensorBoard scalars.

    purge_generation: on resume, TensorBoard forgets this generation and all after it.
    """

    def __init__(self, log_dir: str | os.PathLike[str], purge_generation: int | None = None) -> None:
        self.log_dir, self.purge = str(log_dir), purge_generation
        self._writer: SummaryWriter | None = None

    def write(self, row: GenerationRow) -> None:
        scalars = {**asdict(row), "member_steps_per_second": row.steps_per_second}
        step = scalars.pop("generation")
        with self._named_errors():
            if self._writer is None:
                # the import costs 0.1 s (torch is there already), which a command that only checks need not pay
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(self.log_dir, purge_step=self.purge)
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()

    def close(self) -> None:
        if self._writer:
            with self._named_errors():
                self._writer.close()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        """A full disk shows in the writer's own thread, which does not say of which file."""
        try:
            yield
        except OSError as e:
            raise OSError(e.errno, e.strerror, os.path.join(self.log_dir, "events.out.tfevents")) from e


@dataclass
class RunSummary:
    """What the closing summary is made of."""

    kind: str  # a key of WORLDS
    env_name: str
    solved: bool
    generations: int
    seconds: float  # wall time of all sessions of the run
    total_steps: int  # environment steps of all members
    run_dir: str
    restarts: int = 0
    solved_reward: float | None = None
    proxy: AgentRuns | None = None  # agents trained in the evolved world
    real: AgentRuns | None = None  # agents trained in the real task
    agent: str = "ddqn"
    failed_return: float | None = None  # what a failed agent's return counts as; None: it is left out, and that is said


def summary_text(run: RunSummary) -> str:
    """The closing summary, plain text of at most about 100 columns."""
    world = WORLDS[run.kind]
    verdict = "SOLVED" if run.solved else "NOT SOLVED"
    if run.kind == "shaper" and run.solved_reward is None:
        verdict = "evolved, with no mark to reach"
    goal = f" (mean return of at least {number(run.solved_reward)})" if run.solved_reward is not None else ""
    restarts = f", {run.restarts} restart{'s' * (run.restarts != 1)}" if run.restarts else ""
    lines = [
        f"{run.env_name}, {world}: {verdict}{goal}",
        f"  {run.generations} generation{'s' * (run.generations != 1)}{restarts}, {_minutes(run.seconds)}, "
        f"{run.total_steps:,} environment steps of all agents together",
    ]
    lines += ["", *_comparison(run)] if run.proxy or run.real else []

    folder = Path(run.run_dir)
    files = [(name, what) for name, what in FILES if (folder / name).is_file()]
    events = sorted({p.parent for p in folder.rglob("events.out.tfevents.*")})
    if files or events:
        lines += ["", f"Written to {folder}:", *(f"  {name:<20}{what}" for name, what in files)]
        lines += [f"  {'TensorBoard':<20}tensorboard --logdir {folder}"] if events else []

    lines += ["", "Next:"]
    if not run.solved and "SOLVED" in verdict:
        lines += ["  another seed (--seed 2), or more generations (--set agents.gtn.max_iterations=...)"]
    if run.kind == "shaper":
        return "\n".join(lines + [f"  copy params.yaml into the PARAMS of your shaper in {run.env_name}'s folder"])
    # the packages are in .venv, which the user of `make run` has not activated
    python = os.path.relpath(sys.executable)
    python = "python3" if python.startswith("..") else python
    lines += [f"  {python} experiments/evaluate_proxy.py {folder / 'model.pt'} --agent {run.agent} --num-agents 20"]
    return "\n".join(lines)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} minutes"


def _comparison(run: RunSummary) -> list[str]:
    """Two columns, the evolved world and the real task; a missing one is left out."""
    both = {"in the evolved world": run.proxy, "in the real task": run.real}
    columns = {name: agents for name, agents in both.items() if agents is not None}
    table = [[f"{run.agent} agents trained", *columns]]
    table.append(["training steps needed"])
    table.append(["test return, real task"])
    table.append(["number of agents"])
    notes, needed = [], []
    for name, agents in columns.items():
        # an agent that failed stopped early: its steps would make the training look short
        steps = [s for s, r in zip(agents.steps, agents.returns) if math.isfinite(r)]
        lost = len(agents.returns) - len(steps)
        returns = agents.returns
        if run.failed_return is None:
            returns = [r for r in returns if math.isfinite(r)]
        needed.append(interquartile_mean(steps) if steps else math.nan)
        table[1].append(_interval(steps))
        table[2].append(_interval(returns, run.failed_return))
        table[3].append(str(len(agents.returns)))
        if lost:
            fate = "left out" if run.failed_return is None else f"counted with a return of {number(run.failed_return)}"
            notes.append(f"  {lost} of {len(agents.returns)} agents trained {name} failed and are {fate}.")
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = ["  " + "   ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in table]
    lines.append("  Figures: interquartile mean [95 % bootstrap interval].")
    if len(needed) == 2 and needed[1] > needed[0] > 0:
        ratio = number(needed[1] / needed[0])
        lines.append(f"  An agent needs {ratio} times fewer training steps in the evolved world.")
    return lines + notes


def _interval(x: list[float], failed: float | None = None) -> str:
    if not x:
        return "-"
    s = summary(x, failed="raise" if failed is None else failed)
    return f"{number(s['iqm'])} [{', '.join(map(number, s['iqm_interval']))}]"
