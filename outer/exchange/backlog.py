"""Chunks of a master: which wait, which are late, which are given up. Independent of files and workers."""

from __future__ import annotations

import logging
import statistics
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from envolve.outer.exchange.messages import Chunk, ChunkResult

log = logging.getLogger("envolve")

MAX_ERRORS = 2  # evaluations of one chunk that may end in an exception
SHUN_SECONDS = 60.0  # for which another worker is preferred; a free worker may be the only one that does not hang
KNOWN = 3  # how many chunks of a mode must be done before another can be late
Held = Mapping[int, Sequence[float]]  # index of a chunk -> for how many seconds each of its holders has had it


@dataclass
class Work:
    """Chunk and its history."""

    chunk: Chunk
    attempts: int = 0  # how often it was handed out
    deaths: int = 0
    errors: int = 0
    shunned: dict[int, float] = field(default_factory=dict)  # workers that did not get on with it -> until when
    result: ChunkResult | None = None


@dataclass(frozen=True)
class Patience:
    """Time limits after which a chunk is late or hopeless, in seconds, from the median time of similar chunks.

    The first holder is late after factor x median (and ``least``), then another worker gets the chunk too; each further
    holder has twice the time of the one before. A chunk that as many workers have as there are, or ``max_attempts``, is
    given up after 32 x factor x median and ``hopeless``: then it hangs wherever it goes. ``hopeless`` is a day, as no
    other rule ends a chunk by time: a busy machine makes every chunk slow, and among short trainings there may be one
    of hours. math.inf as factor: never.
    """

    max_attempts: int = 5
    factor: float = 4.0
    least: float = 2.0
    hopeless: float = 86400.0


class Backlog:
    """List of chunks; each gets an index when it is added and keeps it."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.work: dict[int, Work] = {}
        self._queue: deque[int] = deque()
        self._seconds: dict[str, deque[float]] = {}  # per mode, what the latest chunks took ...
        self._usual: dict[str, float] = {}  # ... and the median of it
        self._added = 0

    def add(self, chunk: Chunk) -> int:
        index, self._added = self._added, self._added + 1
        self.work[index] = Work(chunk)
        self._queue.append(index)
        return index

    def pop(self, index: int) -> Work:
        return self.work.pop(index)

    def clear(self) -> None:
        self.work.clear()
        self._queue.clear()

    def waiting(self) -> bool:
        """True if chunks wait to be handed out."""
        return bool(self._queue)

    def usual(self, mode: str) -> float | None:
        """Median seconds of the latest chunks of this mode; None while too few are known."""
        return self._usual[mode] if len(self._seconds.get(mode, ())) >= KNOWN else None

    def shortest(self) -> float:
        """Least of these medians; 0 while none is known."""
        return min((self._usual[mode] for mode in self._seconds if self.usual(mode) is not None), default=0.0)

    def open(self, index: int) -> bool:
        """True if the result is still needed."""
        return index in self.work and self.work[index].result is None

    def next(self, worker: int, workers: Collection[int], now: float) -> int | None:
        """Next chunk for this worker out of ``workers``; a chunk on which it failed goes to another worker first."""
        skipped, found = [], None
        while self._queue and found is None:
            index = self._queue.popleft()
            if not self.open(index):
                continue
            shunned = self.work[index].shunned
            if shunned and shunned.get(worker, now) > now and any(other not in shunned for other in workers):
                skipped.append(index)
            else:
                found = index
        self._queue.extendleft(reversed(skipped))
        return found

    def again(self, index: int, held: Collection[int]) -> None:
        """Puts the chunk first in the queue again, unless another worker (``held``) has it too."""
        if self.open(index) and index not in held and index not in self._queue:
            self._queue.appendleft(index)

    # ------------------------------------------------------------------------------------------------ time

    def took(self, mode: str, seconds: float) -> None:
        """Records the time that a chunk of this mode took."""
        latest = self._seconds.setdefault(mode, deque(maxlen=64))
        latest.append(seconds)
        self._usual[mode] = statistics.median(latest)  # once per result: it is asked for at every look, for every chunk

    def _late_after(self, index: int) -> float | None:
        """Seconds after which the first holder is late; None while too few similar chunks are known."""
        usual = self.usual(self.work[index].chunk.mode)
        return None if usual is None else max(self.patience.least, self.patience.factor * usual)

    def straggler(self, held: Held) -> int | None:
        """Chunk to send to one more worker, because its latest holder has had it for too long."""
        for index, seconds in sorted(held.items()):
            late = self._late_after(index) if self.open(index) else None
            holders = len(seconds)
            if late is not None and holders < self.patience.max_attempts:
                if min(seconds) > late * 2 ** (holders - 1):
                    return index
        return None

    def hopeless(self, held: Held, workers: int) -> list[int]:
        """Chunks held by all of ``workers`` or ``max_attempts`` of them for longer than the hopeless limit."""
        out = []
        for index, seconds in sorted(held.items()):
            late = self._late_after(index) if self.open(index) else None
            everywhere = 0 < min(self.patience.max_attempts, workers) <= len(seconds)
            if late is not None and everywhere and max(seconds) > max(self.patience.hopeless, 32 * late):
                out.append(index)
        return out

    # ------------------------------------------------------------------------------------------------ what goes wrong

    def died(self, index: int, reason: str) -> None:
        """Records that a worker died, or appears to have died, of the chunk."""
        if self.open(index):
            work = self.work[index]
            work.deaths += 1
            if work.deaths >= self.patience.max_attempts:
                self.give_up(index, f"{reason}; given up after {work.deaths} attempts")

    def shun(self, index: int, worker: int, now: float) -> None:
        """Records that this worker failed on it: for a while another one shall have it, if there is one."""
        if self.open(index):
            self.work[index].shunned[worker] = now + SHUN_SECONDS

    def failed(self, index: int) -> bool:
        """Records an exception in its evaluation. Returns whether to retry: that worker may have run out of memory or
        disk."""
        self.work[index].errors += 1
        return self.work[index].errors < MAX_ERRORS

    def give_up(self, index: int, reason: str) -> None:
        """Gives up the chunk: its members get no score, and the reason."""
        work = self.work[index]
        log.error("%s: %s", work.chunk.label, reason)
        work.result = ChunkResult.failed(work.chunk, "", reason)


def completed(results: list[ChunkResult]) -> list[ChunkResult]:
    """Replaces the values of failed chunks by NaN or 0 in the shape of the others, so that all can be joined along
    P."""
    whole = next((r for r in results if not r.error), None)
    for result in results:
        if result.error and whole is not None:
            for name, like in whole.values.items():
                shape = (len(result.reasons), *like.shape[1:])
                fill = float("nan") if like.is_floating_point() else 0
                result.values.setdefault(name, torch.full(shape, fill, dtype=like.dtype))
    return results
