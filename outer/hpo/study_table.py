"""Display of a study: a table in a terminal, otherwise a plain line per trial."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from envolve.outer.hpo.axes import short_names, shown, value_text
from envolve.outer.hpo.report import last_line, name_of, title_of
from envolve.outer.hpo.standings import ranked, rungs, succeeded
from envolve.outer.hpo.trial import Record, Trial
from envolve.outer.reporting.display import LiveDisplay, bar, columns
from envolve.outer.reporting.report import duration, precise

if TYPE_CHECKING:
    from envolve.outer.hpo.study import Study


class StudyTable(LiveDisplay):
    """Trials done, those out and with whom, every budget, the best five, and when it will end.

    remembered: what was done before, when a study is continued; it counts for all but the ETA. The ETA assumes that a
    unit of budget goes on taking as long as it has in this session, with as many trials out; '-' before the first.

        with StudyTable(study, console, remembered=log.read()) as table:
            table.started(trial, "NES master 0")
            table.update(record)
    """

    BEST, OUT, PARAMETERS = 5, 8, 4  # rows, rows, and parameters written in a row
    WIDE = 100  # columns, from which on tables stand side by side

    def __init__(self, study: Study, console: Console | None = None, remembered: Sequence[Record] = ()) -> None:
        title = f"{title_of(study)}: {study.backend}, {study.bracket}, {study.budget.unit}"
        super().__init__(title, console)
        self.study = study
        self.records = list(remembered)
        self.out: dict[int, tuple[Trial, str, float]] = {}  # trial, its NES master, start time
        self.spent = 0.0  # budget of the trials of this session
        self.first: float | None = None  # when the first of them began
        self.last: float | None = None  # when the last of them ended

    def started(self, trial: Trial, who: str) -> None:
        """who: the evaluating master; called again if the trial moves to another one."""
        with self.lock:
            now = time.monotonic()
            since = self.out[trial.id][2] if trial.id in self.out else now
            self.first = self.first if self.first is not None else now  # before, NES masters had to start
            self.out[trial.id] = trial, who, since
        self._show(None)

    def update(self, record: Record) -> None:
        with self.lock:
            self.records.append(record)
            self.out.pop(record.trial.id, None)
            self.spent += record.trial.budget
            self.last = time.monotonic()
            line = "" if self.live else self._one_line(record)
        self._show(line)

    # ------------------------------------------------------------------------------------------------ what is known

    def share(self) -> float:
        """Finished share of the study, 0 to 1."""
        s = self.study
        shares = [len(self.records) / s.trials] if s.trials is not None else []
        if s.full_evaluations is not None:
            shares.append(sum(r.trial.budget for r in self.records) / s.budget.most / s.full_evaluations)
        return min(1.0, max(shares, default=0.0))

    def _eta(self) -> str:
        """Estimated time to the end: the nearer one of its limits counts."""
        if self.last is None or not self.spent:
            return "-"
        s, now = self.study, time.monotonic()
        mean = sum(r.trial.budget for r in self.records) / len(self.records)
        left = [(s.trials - len(self.records)) * mean] if s.trials is not None else []
        if s.full_evaluations is not None:
            left.append(s.full_evaluations * s.budget.most - sum(r.trial.budget for r in self.records))
        began = min(self.first if self.first is not None else self.began, self.last)
        seconds = max(0.0, min(left)) * (self.last - began) / self.spent
        return duration(max(0.0, seconds - (now - self.last)))

    def _clock(self) -> str:
        return f"elapsed {duration(time.monotonic() - self.began)}  ETA {self._eta()}"

    def _count(self) -> tuple[str, str]:
        """Trials done, the total, and their budgets."""
        s, done = self.study, len(self.records)
        expected = "" if s.trials is None else f"/{s.trials}"
        if s.trials is None and self.share() > 0:
            expected = f" of about {max(done, round(done / self.share()))}"
        full = sum(r.trial.budget for r in self.records) / s.budget.most
        limit = f"/{s.full_evaluations:g}" if s.full_evaluations is not None else ""
        return f"trial {done}{expected}", f"full evaluations {full:.1f}{limit}"

    def _one_line(self, record: Record) -> str:
        trial = record.trial
        what = f"loss {precise(record.result.loss)}"
        if not succeeded(record):
            what = f"failed: {shown(last_line(record.result.error), 100)}"
        best = next(iter(ranked(self.records)), None)
        so_far = ""
        if best is not None:
            so_far = f"  best {precise(best.result.loss)} ({name_of(best.trial.config_id)} at {best.trial.budget:g})"
        by = "model" if trial.model_based else "random"
        return (
            f"{'  '.join(self._count())}  {name_of(trial.config_id)} ({by}) at {trial.budget:g}"
            f" {self.study.budget.unit}: {what}{so_far}  {self._clock()}"
        )

    # ------------------------------------------------------------------------------------------------ how it is shown

    def _parts(self) -> list[RenderableType]:
        trials, full = self._count()
        top = bar(self.share(), 1.0, trials, self._clock())
        first = {r.trial.config_id: r.trial for r in reversed(self.records)}
        model = sum(t.model_based for t in first.values())
        failed = sum(not succeeded(r) for r in self.records)
        picks = Text(f"{full}, configurations: {model} model, {len(first) - model} random")
        picks.append(f", failed trials: {failed}", style="yellow" if failed else "")
        tables = [self._rungs(), *[self._who()] * bool(self.out)]
        if self.console.width < self.WIDE:
            side: RenderableType = Group(*tables)
        else:
            side = Table.grid(padding=(0, 4))
            side.add_row(*tables)
        return [top, picks, side, *[self._best()] * bool(self.records)]

    def _rungs(self) -> Table:
        table = columns(("budget", "done", "out", "failed", "best", "median"), left=0)
        out = [trial.budget for trial, _, _ in self.out.values()]
        rows = {r.budget: r for r in rungs(self.records)}
        for budget in sorted({*rows, *out}):
            r = rows.get(budget)
            done = ("0", "", "-", "-")
            if r is not None:
                done = str(r.trials), str(r.failed or ""), precise(r.best), precise(r.median)
            table.add_row(f"{budget:g}", done[0], str(out.count(budget) or ""), *done[1:])
        return table

    def _who(self) -> Table:
        table = columns(("out now", "budget", "for", "with"))
        now = time.monotonic()
        for trial, who, since in list(self.out.values())[: self.OUT]:
            table.add_row(name_of(trial.config_id), f"{trial.budget:g}", duration(now - since), Text(who))
        if len(self.out) > self.OUT:
            table.add_row(f"and {len(self.out) - self.OUT} more", "", "", "")
        return table

    def _best(self) -> Table:
        table = columns(("best", "loss", "budget", "by"))
        table.add_column("values")  # not no_wrap: of all columns only this one may be cut off
        names = short_names(sorted({name for r in self.records for name in r.trial.values}))
        for r in ranked(self.records)[: self.BEST]:
            t = r.trial
            values = [f"{shown(names[n])} {value_text(v)}" for n, v in t.values.items()]
            more = f", {len(values) - self.PARAMETERS} more" * (len(values) > self.PARAMETERS)
            by = "model" if t.model_based else "random"
            text = Text(", ".join(values[: self.PARAMETERS]) + more, no_wrap=True, overflow="ellipsis")
            table.add_row(name_of(t.config_id), precise(r.result.loss), f"{t.budget:g}", by, text)
        return table
