"""An engine without workers: chunks are evaluated in this process, when they are submitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from typing_extensions import Self

from envolve.outer.exchange.engine import Unfit, evaluate_all
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.exchange.messages import Chunk, ChunkResult, result_of

Evaluate = Callable[[dict[str, Any], Tensor, Tensor, str], dict[str, Any]]  # config, worlds, seeds, mode -> values


class InProcess:
    """:class:`envolve.outer.exchange.engine.Engine` on one core. What ``evaluate`` raises is raised by ``submit``, and
    a result that is unfit is an ExchangeError, as there is no other worker."""

    def __init__(self, evaluate: Evaluate, run_id: str = "here") -> None:
        self.run_id, self._evaluate = run_id, evaluate
        self.on_wait: Callable[[], None] | None = None  # nothing is waited for
        self._results: list[ChunkResult | None] = []

    def evaluate(self, chunks: Sequence[Chunk], unfit: Unfit | None = None) -> list[ChunkResult]:
        results = evaluate_all(self, chunks)
        for chunk, result in zip(chunks, results):
            wrong = unfit(result) if unfit else ""
            if wrong:
                raise ExchangeError(f"{chunk.label}: {wrong}")
        return results

    def submit(self, chunk: Chunk) -> int:
        self._results.append(result_of(chunk, "", self._evaluate(chunk.config, chunk.worlds, chunk.seeds, chunk.mode)))
        return len(self._results) - 1

    def result(self, ticket: int) -> ChunkResult:
        found = self._results[ticket]
        assert found is not None, "asked for once"
        self._results[ticket] = None
        return found

    def withdraw(self) -> None:
        self._results.clear()

    def holders(self) -> list[tuple[int, int]]:
        return []

    def workers(self) -> list[int]:
        return []

    def close(self, quit_workers: bool = False) -> None:
        self.withdraw()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
