"""Parallel file access on slow file systems, for a master's files of its workers.

A local folder answers in microseconds, and threads would only be in each other's way. A network file system takes
milliseconds for every operation, and a master that asks for one after the other does little but wait. A thread's own
CPU time tells the two apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

SLOW = 0.0008  # seconds of waiting in one item ...
IN_A_ROW = 3  # ... so often, and the others go to the threads: a local disk does that too now and then


class Lanes:
    """Runs a function over items, in at most ``count`` threads; 0: always one after the other."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._slow = 0  # items in a row that waited
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
        while len(out) < len(rest) and not (self.count and self._slow >= IN_A_ROW):
            began, busy = time.perf_counter(), time.thread_time()
            out.append(kept(rest[len(out)]))
            waited = time.perf_counter() - began - (time.thread_time() - busy)
            self._slow = self._slow + 1 if waited > SLOW else 0
        rest = rest[len(out) :]
        if rest:
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


def raise_first(results: Iterable[object]) -> None:
    """Raises the first exception among the results of :meth:`Lanes.map`, if there is one."""
    for result in results:
        if isinstance(result, Exception):
            raise result
