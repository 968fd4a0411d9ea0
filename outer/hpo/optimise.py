"""Search over configurations: asks, hands trials to NES masters, tells the results in order, logs them.

At most ``parallel`` trials are out. What came of them is told in the order of asking, however they end, so that trial i
is asked after exactly the trials 0 to i - parallel were told: the same study gives the same results with any number of
NES masters, whichever dies, and a search that was interrupted is resumed by telling it its log.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from envolve.outer.checkpoint import RunError
from envolve.outer.exchange.engine import Engine
from envolve.outer.hpo.axes import shown
from envolve.outer.hpo.nes_master import result_of, trial_chunk
from envolve.outer.hpo.report import last_line
from envolve.outer.hpo.search import make_search
from envolve.outer.hpo.study import Study
from envolve.outer.hpo.trial import Record, Trial
from envolve.outer.hpo.trial_log import TrialLog

log = logging.getLogger("envolve")


class TrialTable(Protocol):
    """Interface of the display of a search (``outer/hpo/study_table.py``)."""

    def started(self, trial: Trial, who: str) -> None: ...

    def update(self, record: Record) -> None: ...

    def note(self, text: str) -> None: ...


class Copy(Protocol):
    """Whatever is told every trial, in order, those of earlier processes too (``outer/hpo/optuna_storage.py``)."""

    def tell(self, record: Record) -> None: ...


@dataclass
class _Out:
    trial: Trial
    known: Record | None  # from the log of an earlier process
    ticket: int = -1
    submitted: float = 0.0
    started: float = 0.0  # when an NES master was first seen to have it
    who: int = -1


class Optimiser:
    """One study, from its log to its end."""

    def __init__(self, study: Study, run_dir: Path, dispatcher: Engine, copies: Sequence[Copy] = ()) -> None:
        """Raises ConfigError for a damaged log."""
        self.study, self.dispatcher, self.copies = study, dispatcher, copies
        self.log = TrialLog(run_dir)
        self.known = self.log.read()
        b = study.budget
        self.search = make_search(
            study.backend,
            study.space.config_space,
            (b.least, b.most, b.eta),
            bracket=study.bracket,
            seed=study.seed,
            random_fraction=study.random_fraction,
        )
        self.records: list[Record] = []
        self.asked, self.spent = 0, 0.0  # trials, and the sum of their budgets
        self._out: deque[_Out] = deque()

    def execute(self, table: TrialTable) -> Sequence[Record]:
        """Runs the search. Raises RunError, ExchangeError, OSError; after KeyboardInterrupt the search can be
        resumed."""
        if self.known:
            table.note(f"resumed after {len(self.known)} trials")
        others, self._table = self.dispatcher.on_wait, table

        def on_wait() -> None:
            if others is not None:
                others()
            self._look_who()

        self.dispatcher.on_wait = on_wait
        try:
            while True:
                while len(self._out) < self.study.parallel and not self._enough():
                    self._out.append(self._ask())
                if not self._out:
                    return self.records
                self._tell(self._wait(self._out[0]))
                self._out.popleft()
        finally:
            self.dispatcher.on_wait = others
            self.dispatcher.withdraw()

    def _enough(self) -> bool:
        s = self.study
        if s.trials is not None and self.asked >= s.trials:
            return True
        return s.full_evaluations is not None and self.spent >= s.full_evaluations * s.budget.most * (1 - 1e-9)

    def _ask(self) -> _Out:
        trial = self.search.ask()
        self.asked += 1
        self.spent += trial.budget
        if trial.id < len(self.known):
            known = self.known[trial.id]
            same = (known.trial.config_id, known.trial.budget) == (trial.config_id, trial.budget)
            if not same or known.trial.values != trial.values:
                raise RunError(
                    f"{self.log.results}: trial {trial.id} of the log is another than this search asks for: it was"
                    " written with other versions of ConfigSpace, hpbandster or optuna; begin a new folder"
                )
            return _Out(trial, known)
        chunk = trial_chunk(self.dispatcher.run_id, self.study.digest, trial)
        return _Out(trial, None, self.dispatcher.submit(chunk), time.time())

    def _wait(self, out: _Out) -> Record:
        if out.known is not None:
            return out.known
        result = self.dispatcher.result(out.ticket)
        finished = time.time()
        outcome = result_of(result.values, result.reasons[0], result.error)
        return Record(out.trial, outcome, out.submitted, out.started or finished, finished)

    def _tell(self, record: Record) -> None:
        """Tells a result, after logging it: told trials are never asked again."""
        if record.trial.id >= len(self.known):
            self.log.append(record)
            self._table.update(record)
            if record.result.error:
                self._table.note(f"trial {record.trial.id} failed: {shown(last_line(record.result.error), 100)}")
        for copy in self.copies:
            copy.tell(record)
        self.search.tell(record.trial.id, record.result.loss)
        self.records.append(record)

    def _look_who(self) -> None:
        """Shows which NES master has which trial."""
        holders = dict(self.dispatcher.holders())
        for out in self._out:
            who = holders.get(out.ticket, -1) if out.known is None else -1
            if who >= 0 and who != out.who:
                out.who, out.started = who, out.started or time.time()
                self._table.started(out.trial, f"NES master {who}")
