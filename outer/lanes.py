"""Side by side where the file system is slow: what a master reads and writes for its workers.

A local folder answers in microseconds, and threads would only be in each other's way. A network file system takes
milliseconds for every operation, and a master that asks for one after the other does little but wait. Which of the two
it is shows in the first item: a thread's own CPU time is all that it took, or is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

SLOW = 0.0005  # seconds of waiting in one item, from which on the others go to the threads


class Lanes:
    """Runs a function over items, in at most ``count`` threads; 0: always one after the other."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result | Exception]:
        """In the order of ``items``: what the function returned, or the exception that it raised."""

        def kept(item: Item) -> Result | Exception:
            try:
                return function(item)
            except Exception as e:
                return e

        rest = list(items)
        out: list[Result | Exception] = []
        for i, item in enumerate(rest):
            began, busy = time.perf_counter(), time.thread_time()
            out.append(kept(item))
            waited = time.perf_counter() - began - (time.thread_time() - busy)
            if self.count and waited > SLOW and i + 2 < len(rest):
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="files")
                return out + list(self._pool.map(kept, rest[i + 1 :]))
        return out

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def raise_first(results: Iterable[object]) -> None:
    """Raises the first of the exceptions among what :meth:`Lanes.map` returned, if there is one."""
    for result in results:
        if isinstance(result, Exception):
            raise result
