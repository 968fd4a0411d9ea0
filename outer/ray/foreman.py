"""A foreman passes chunks on to the workers of its node, and their answers back.

A call of an actor costs its caller 0.3 ms, so one driver with a call per chunk keeps no more than 2,000 workers busy
with chunks of a second. On a node of many workers the driver sends a letter of many chunks to the foreman, whose calls
cost the driver nothing, and fetches the answers of all that have ended in between (docs/scaling.md).

A foreman knows nothing that is not known elsewhere. When it dies, the driver calls its workers itself
(``outer/ray/foremen.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from envolve.outer.ray.events import ANSWER, Event, failure

HIRE, DISMISS, LESSON, CHUNK = "hire", "dismiss", "lesson", "chunk"
Order = tuple[str, int, Any, bytes]  # what, worker, its handle or a lesson's key or a chunk's token, data


class Foreman:
    """One per node, an asynchronous actor: its calls take turns within one thread."""

    def __init__(self) -> None:
        self._workers: dict[int, Any] = {}
        self._read, self._early = 0, dict[int, Sequence[Order]]()  # letters; those that have overtaken others
        self._ended: list[Event] = []
        self._some = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    async def take(self, number: int, letter: Sequence[Order]) -> None:
        """Passes orders on, in their order. Ray's asynchronous actors get calls in any order, so letters have numbers.
        Does not wait for answers."""
        self._early[number] = letter
        while self._read in self._early:
            for order in self._early.pop(self._read):
                self._obey(*order)
            self._read += 1

    def _obey(self, kind: str, worker: int, name: Any, data: bytes) -> None:
        if kind == HIRE:
            self._workers[worker] = name
        elif worker not in self._workers:
            return  # dismissed in between; nobody waits for it
        elif kind == DISMISS:
            del self._workers[worker]
        elif kind == LESSON:
            self._workers[worker].learn.remote(name, data)
        else:
            task = asyncio.ensure_future(self._follow(self._evaluation(worker, data), worker, name))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def ended(self) -> list[Event]:
        """What has happened since the last call; waits for the first. One call at a time."""
        await self._some.wait()
        self._some.clear()
        events, self._ended = self._ended, []
        return events

    def _evaluation(self, worker: int, data: bytes) -> Awaitable[bytes]:
        answer: Awaitable[bytes] = self._workers[worker].evaluate.remote(data)
        return answer

    async def _follow(self, answer: Awaitable[bytes], worker: int, token: int) -> None:
        try:
            event = Event(ANSWER, worker, token, await answer)
        except Exception as e:  # whatever happened to it or to its worker
            event = failure(e, worker, token)
        self._ended.append(event)
        self._some.set()
