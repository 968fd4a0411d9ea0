"""Parallel file access on slow file systems, for a master's files of its workers.

A local folder answers in microseconds, and threads would only be in each other's way. A network file system takes
milliseconds for every operation, and a master that asks for one after the other does little but wait. The kernel tells
the two apart: a thread that waits for a file gives up its core, and one on a busy machine loses it.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

SLOW = 0.0008  # seconds of waiting in one item ...
IN_A_ROW = 3  # ... so often, and the others go to the threads: a local disk does that too now and then
_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # not every system counts by thread
PROBE = 16  # calls with threads, after which an item is tried alone: it may have been the disk's busy hour


class Lanes:
    """Runs a function over items, in at most ``count`` threads; 0: always one after the other."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._slow = 0  # items in a row that waited
        self._shared = 0  # calls with threads since one was tried alone
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result | Exception]:
        """Results of the function in the order of ``items``; a raised exception takes the place of its result."""

        def kept(item: Item) -> Result | Exception:
            try:
                return function(item)
            except Exception as e:
                return e

        rest = list(items)
        out: list[Result | Exception] = []
        if not self.count:
            return list(map(kept, rest))
        if self._shared >= PROBE:
            self._slow, self._shared = min(self._slow, IN_A_ROW - 1), 0
        began, given_up = time.perf_counter(), _given_up()
        for item in rest:
            if self._slow >= IN_A_ROW:
                break
            out.append(kept(item))
            ended = time.perf_counter()
            if ended - began <= SLOW:
                self._slow = 0
            else:
                before, given_up = given_up, _given_up()
                self._slow = self._slow + 1 if given_up > before else 0
            began = ended
        rest = rest[len(out) :]
        if rest:
            self._shared += 1
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="files")
            began = time.perf_counter()
            out += self._pool.map(kept, rest)
            if time.perf_counter() - began < SLOW * len(rest) / self.count:
                self._slow = 0  # it would have waited less, had it done one after the other
        return out

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _given_up() -> int:
    """How often this thread has left its core to wait, rather than lost it."""
    return resource.getrusage(_THREAD).ru_nvcsw


def raise_first(results: Iterable[object]) -> None:
    """Raises the first exception among the results of :meth:`Lanes.map`, if there is one."""
    for result in results:
        if isinstance(result, Exception):
            raise result
