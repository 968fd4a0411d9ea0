"""A foreman passes chunks on to the workers of its node, and their answers back.

A call of an actor costs its caller 0.3 ms, so one driver with a call per chunk keeps no more than 2,000 workers busy
with chunks of a second. On a node of many workers the driver sends a letter of many chunks to the foreman, whose calls
cost the driver nothing, and fetches the answers of all that have ended in between (docs/scaling.md).

A foreman knows nothing that is not known elsewhere. When it dies, the driver calls its workers itself
(``outer/ray/foremen.py``).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from envolve.outer.ray.evaluator import CONFIGS, GROUNDS
from envolve.outer.ray.events import ANSWER, Event, failure
from envolve.outer.ray.parcel import unwrap, wrap

HIRE, DISMISS, LESSON, CHUNK = "hire", "dismiss", "lesson", "chunk"
Order = tuple[str, int, Any, bytes]  # what, worker, a lesson's key or [a chunk's token, keys of its lessons ...], data
LESSONS = CONFIGS + GROUNDS  # that a foreman keeps, the latest; the driver counts along
Kept = TypeVar("Kept")


def keep(lessons: OrderedDict[str, Kept], key: str, value: Kept) -> None:
    """Adds a lesson, if it is new, and drops the oldest."""
    lessons.setdefault(key, value)
    while len(lessons) > LESSONS:
        lessons.popitem(last=False)


def events_of(parcel: bytes) -> list[Event]:
    return [Event(kind, worker, token, data, text) for (kind, worker, token, text), data in unwrap(parcel)]


class Foreman:
    """One per node, an asynchronous actor: its calls take turns within one thread."""

    def __init__(self) -> None:
        self._workers, self._hired = dict[int, Any](), dict[int, Any]()  # handles; those of letters not yet read
        self._read, self._early = 0, dict[int, bytes]()  # letters; those that have overtaken others
        self._lessons: OrderedDict[str, bytes] = OrderedDict()
        self._ended: list[Event] = []
        self._some = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    async def take(self, number: int, letter: bytes, hired: Mapping[int, Any] = MappingProxyType({})) -> None:
        """Passes orders on, in their order. Ray's asynchronous actors get calls in any order, so letters have numbers.
        Does not wait for answers. hired: handles of the workers that the letter hires."""
        self._early[number] = letter
        self._hired.update(hired)
        while self._read in self._early:
            for (kind, worker, name), data in unwrap(self._early.pop(self._read)):
                self._obey(kind, worker, name, data)
            self._read += 1

    def _obey(self, kind: str, worker: int, name: Any, data: bytes) -> None:
        if kind == LESSON:  # for any worker of the node
            keep(self._lessons, name, data)
        elif kind == HIRE:
            self._workers[worker] = self._hired.pop(worker)
        elif worker not in self._workers:
            return  # dismissed in between; nobody waits for it
        elif kind == DISMISS:
            del self._workers[worker]
        else:
            token, *keys = name
            for key in keys:
                if key in self._lessons:  # else the letter with it found no room
                    self._teach(worker, key, self._lessons[key])
            task = asyncio.ensure_future(self._follow(self._evaluation(worker, data), worker, token))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def ended(self) -> bytes:
        """What has happened since the last call, for :func:`events_of`; waits for the first. One call at a time."""
        await self._some.wait()
        self._some.clear()
        events, self._ended = self._ended, []
        return wrap([((e.kind, e.worker, e.token, e.text), e.value or b"") for e in events])

    def _teach(self, worker: int, key: str, lesson: bytes) -> None:
        self._workers[worker].learn.remote(key, lesson)

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
