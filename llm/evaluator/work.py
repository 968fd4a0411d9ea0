"""Evaluates candidates as they come: vets each in the jail, trains whatever waits in one simulator, stores results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from envolve.agents.shaped.halving import Training
from envolve.core.statistics import or_none
from envolve.llm.evaluator.store import Store
from envolve.llm.fitness import evaluate
from envolve.llm.search.individual import HUMAN, INITIAL, Individual
from envolve.llm.search.reflection import reflect
from envolve.llm.vetting.vet import Rejection, Vetter
from envolve.outer.reporting.board import Board

Evaluate = Callable[[Training, list[Individual], int], None]


@dataclass
class Evaluator:
    """One evaluator. ``work`` trains; ``submit`` and ``result`` may be called from other threads.

    batch: candidates that are trained at once; queue: most that wait; run: trains individuals and writes what came of
    it into them."""

    store: Store
    vetter: Vetter
    training: Training
    seed: int
    unit: str = ""
    batch: int = 16
    queue: int = 256
    run: Evaluate = evaluate
    board: Board | None = None  # TensorBoard events of every result

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._stopped = False
        self.human: dict[str, Any] | None = self.store.known("human")
        self.trained = 0  # in this process
        self.batches: list[int] = []

    def submit(self, code: str) -> tuple[str, bool]:
        """Id of a candidate and whether there was room for it."""
        found = self.store.ask(code, self.queue)
        with self._changed:
            self._changed.notify_all()
        return found

    def result(self, number: str, seconds: float) -> dict[str, Any] | None:
        """Result of a candidate; waits for it at most so long. None: there is none yet."""
        with self._changed:
            self._changed.wait_for(lambda: self.store.known(number) is not None or self._stopped, seconds)
        return self.store.known(number)

    def stop(self) -> None:
        """Wakes all threads that wait."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def work(self, once: bool = False, pause: float = 0.2) -> int:
        """Evaluates what waits, until ``stop`` -> the number of candidates. once: return when nothing waits."""
        count = 0
        while not self._stopped:
            waiting = self.store.next(self.batch)
            if waiting:
                self._batch(waiting)
                count += len(waiting)
            elif once:
                break
            else:
                with self._changed:
                    self._changed.wait(pause)
        return count

    def _batch(self, waiting: dict[str, str]) -> None:
        verdicts = self.vetter.vet_all([(code, number) for number, code in waiting.items()])
        members: dict[str, Individual] = {}
        for k, ((number, code), verdict) in enumerate(zip(waiting.items(), verdicts)):
            individual = Individual(k, 0, 0, INITIAL, (), "", -1, code, verdict.code, notes=verdict.notes)
            if isinstance(verdict, Rejection):
                individual.rejection = (verdict.stage, verdict.message)
                self._store(number, individual)
            else:
                individual.graph_file = verdict.graph_file
                members[number] = individual
        if not members:
            return
        every = list(members.values())
        reference = Individual(-1, 0, 0, HUMAN, (), "", -1)
        first = self.human is None
        self.run(self.training, [*every, reference] if first else every, self.seed)
        self.trained += len(every)
        self.batches.append(len(every))
        if first:
            self.human = self._store("human", reference)
        for number, individual in members.items():
            self._store(number, individual)

    def _store(self, number: str, i: Individual) -> dict[str, Any]:
        result = result_of(number, i, self.unit)
        self.store.done(result)
        if self.board is not None:
            self.board.write(len(self.store.results), figures(result))
        with self._changed:
            self._changed.notify_all()
        return result


def figures(result: Mapping[str, Any]) -> dict[str, float]:
    """What is drawn of a result; its step is the number of results."""
    out = {status: float(result["status"] == status) for status in ("refused", "failed")}
    return out | {name: float(result[name]) for name in ("score", "steps") if result[name] is not None}


def result_of(number: str, i: Individual, unit: str) -> dict[str, Any]:
    """What a sender is told of a candidate."""
    stage, why = i.rejection or ("training" if i.failure else "", i.failure or "")
    return {
        "id": number,
        "status": "scored" if i.ok else "refused" if i.rejection else "failed",
        "score": i.score if i.ok else None,
        "unit": unit,
        "interval": list(i.interval) if i.interval else None,
        "stage": stage,
        "reason": why,
        "notes": list(i.notes),
        "code": i.code,
        "curves": {name: [or_none(x) for x in curve] for name, curve in i.curves.items()},
        "feedback": reflect(i, None, unit),
        "steps": i.steps,
    }
