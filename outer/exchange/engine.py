"""What a run needs of whatever evaluates its members: files in a shared folder (``outer/exchange/dispatch.py``) or Ray
(``outer/ray/pool.py``). A result depends on the chunk alone, so both give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from typing_extensions import Self

from envolve.outer.exchange.backlog import completed
from envolve.outer.exchange.machine import Rejected
from envolve.outer.exchange.messages import Chunk, ChunkResult, chunk_from, chunk_sent

Unfit = Callable[[ChunkResult], str]


class Engine(Protocol):
    """Chunks in, results out, whatever dies in between."""

    run_id: str
    on_wait: Callable[[], None] | None  # called a few times per second while the engine waits

    def evaluate(self, chunks: Sequence[Chunk], unfit: Unfit | None = None) -> list[ChunkResult]:
        """The results, in the order of ``chunks``; returns when all are there. unfit: what is wrong with the values of
        a result, "" if nothing is; one that does not fit is not accepted."""

    def submit(self, chunk: Chunk) -> int:
        """Puts a chunk behind the others and returns its ticket. Raises ValueError for a chunk that workers would
        reject."""

    def result(self, ticket: int) -> ChunkResult:
        """Waits for the result of a submitted chunk, to be asked for once. Raises ExchangeError."""

    def withdraw(self) -> None:
        """Cancels all waiting."""

    def holders(self) -> list[tuple[int, int]]:
        """(ticket, id of a worker that has its chunk)."""

    def workers(self) -> list[int]:
        """Ids of the live workers."""

    def close(self, quit_workers: bool = False) -> None:
        """Gives up all that the engine holds. quit_workers: workers that were started by others end, too."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class ChunkCheck:
    """Says whether workers would reject a chunk. The latest configuration is checked once, as thousands of chunks share
    it. Callers must not change it."""

    def __init__(self) -> None:
        self._config: dict[str, Any] | None = None  # that passed

    def __call__(self, chunk: Chunk) -> None:
        """Raises ValueError."""
        config = {} if chunk.config is self._config else chunk.config
        try:
            chunk_from(chunk_sent(chunk, "", config), received=False)
        except Rejected as e:
            raise ValueError(f"{chunk.label} cannot be sent to a worker: {e}") from e
        self._config = chunk.config


def evaluate_all(engine: Engine, chunks: Sequence[Chunk]) -> list[ChunkResult]:
    """Submits all chunks and waits for all results, in the order of the chunks."""
    engine.withdraw()
    try:
        tickets = [engine.submit(chunk) for chunk in chunks]
        return completed([engine.result(ticket) for ticket in tickets])
    finally:
        engine.withdraw()
