"""Members of an evolution of starts and goals, evaluated in this process or by local workers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from envolve.outer.config.load import Config
from envolve.outer.evaluate.goals import DIVERGED, GoalProblem
from envolve.outer.evaluate.members import evaluate_members
from envolve.outer.evaluate.networks import PROXY, evaluate
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.engine import Engine
from envolve.outer.exchange.in_process import InProcess
from envolve.outer.exchange.local_workers import LocalWorkers
from envolve.outer.loop.loop import Evaluated
from envolve.outer.search.nes import Population

log = logging.getLogger("envolve")

SYNC = "sync"


class GoalMembers:
    """The evaluator of ``GoalEvolution``: its members trained through an engine."""

    def __init__(self, problem: GoalProblem, engine: Engine) -> None:
        self.engine = engine
        self.config = Config(problem.config(), [], "")

    def __call__(self, number: int, members: Population) -> Evaluated:
        """number: of the generation. Raises RunError, ExchangeError."""
        found = evaluate_members(self.engine, self.config, number, members.worlds, members.seeds, PROXY)
        for reason in sorted({r for r in found[1] if r and not r.startswith(DIVERGED)}):
            log.warning("members failed: %s", reason)
        return Evaluated.of(*found)


@contextlib.contextmanager
def engine_of(folder: Path, workers: int | None, threads: int) -> Iterator[Engine]:
    """workers: local processes; None: this process, with this many threads. The result depends on the chunks and the
    threads (a worker has one), not on the number of workers. Raises ExchangeError."""
    if workers is None:
        yield InProcess(partial(evaluate, threads=threads), folder.name)
        return
    with Dispatcher(str(folder / SYNC), 0, folder.resolve().name) as dispatcher:
        with LocalWorkers(workers, folder / SYNC, 0, folder) as own:
            dispatcher.on_wait = own.poll
            yield dispatcher
