"""Workers of a pool on Ray: each node gets as many as it has room for, nodes may come and go, dead workers are replaced
with a growing delay. Nothing here knows what is in a chunk."""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from envolve.core.child import backoff
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray.cluster import Node
from envolve.outer.ray.evaluator import Versions, differences
from envolve.outer.ray.events import UNFIT, Event

log = logging.getLogger("envolve")

LOOK_SECONDS = 1.0  # between looks at the nodes
MAX_QUICK_DEATHS = 10  # of a node's workers in a row, before any has answered
FIRST_DELAY, MAX_DELAY = 0.1, 10.0  # seconds before a worker is started in the place of a dead one


class Events(Protocol):
    """Events as a queue gives them; both raise queue.Empty."""

    def get(self, timeout: float) -> Event: ...

    def get_nowait(self) -> Event: ...


class Cluster(Protocol):
    """What the pool needs of ``outer/ray/cluster.py``; tests have another."""

    @property
    def events(self) -> Events: ...

    def nodes(self) -> list[Node]: ...

    def request(self, workers: int) -> None: ...

    def begin(self, worker: int, node: str) -> None: ...

    def learn(self, worker: int, key: str, config: bytes) -> None: ...

    def send(self, worker: int, token: int, data: bytes) -> None: ...

    def flush(self) -> None: ...

    def end(self, worker: int) -> None: ...

    def close(self) -> None: ...


@dataclass
class Sent:
    """A chunk at a worker."""

    index: int
    attempt: int
    at: float


@dataclass
class Member:
    """A worker. ``out``: its chunks by token, the one in work first."""

    node: str
    ready: bool = False
    out: OrderedDict[int, Sent] = field(default_factory=OrderedDict)
    answered_at: float = 0.0
    knows: OrderedDict[str, None] = field(default_factory=OrderedDict)  # configurations, as the worker counts them
    grounds: OrderedDict[str, None] = field(default_factory=OrderedDict)  # of thin chunks, likewise


@dataclass
class SeenNode:
    """A node that was seen. ``barred``: why it gets no worker."""

    name: str
    greeted: bool = False
    failures: int = 0
    not_before: float = 0.0
    barred: str = ""


class Staff:
    """Workers by number, and the nodes that they are on. ``count``: how many, None: what the nodes have room for;
    ``mine``: versions that they must have."""

    def __init__(
        self, cluster: Cluster, mine: Versions, count: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster, self._mine, self._count, self._clock = cluster, mine, count, clock
        self.members: dict[int, Member] = {}
        self.places: dict[str, SeenNode] = {}
        self._started = 0
        self.look_at = float("-inf")  # when the nodes are to be looked at again

    def look(self) -> list[Member]:
        """Starts workers where there is room -> those that will never be ready, with their nodes gone. Raises
        ExchangeError if there can be none."""
        now = self._clock()
        self.look_at = now + LOOK_SECONDS
        nodes = self._cluster.nodes()
        slots = sum(node.slots for node in nodes)
        if self._count is not None and self._count > slots:
            self._cluster.request(self._count)
        room = slots if self._count is None else self._count
        for node in nodes:
            place = self.places.setdefault(node.id, SeenNode(node.name))
            there = sum(m.node == node.id for m in self.members.values())
            missing = min(node.slots - there, room - len(self.members))
            if place.barred or now < place.not_before:
                continue
            for _ in range(min(missing, 1) if place.failures else missing):  # singly where the last one died
                self._started += 1
                self.members[self._started] = Member(node.id)
                self._cluster.begin(self._started, node.id)
        live = {node.id for node in nodes}
        gone = [w for w, m in self.members.items() if m.node not in live and not m.ready]
        barred = [self.places[node.id].barred for node in nodes]
        if barred and all(barred) and len(self.members) == len(gone):
            raise ExchangeError(f"no worker can be started on Ray: {barred[0]}")
        return [self.drop(worker) for worker in gone]

    def welcome(self, worker: int, said: dict[str, str]) -> bool:
        """Takes a worker on that has said what it is; False if it does not fit, and is gone."""
        member = self.members[worker]
        place = self.places[member.node]
        other = differences(self._mine, said)
        if other:
            self._bar(place, f"node {place.name} has {', '.join(other)}; install the same on all nodes")
            self.drop(worker)
            return False
        if int(said.get("nice", "0")) > os.nice(0) and not place.greeted:
            words = "workers of node %s run at niceness %s; start its Ray with RAY_worker_niceness=0 for the full speed"
            log.warning(words, place.name, said["nice"])
        place.greeted = member.ready = True
        member.answered_at = self._clock()
        log.info("worker %d is there: pid %s on %s", worker, said.get("pid"), place.name)
        return True

    def bury(self, event: Event) -> tuple[Member, str]:
        """Forgets a worker that has died -> it, and the reason in words."""
        place = self.places[self.members[event.worker].node]
        reason = f"worker {event.worker} on {place.name} died: {event.text}"
        log.warning("%s", reason)
        member = self.drop(event.worker)
        place.failures += 1
        place.not_before = self._clock() + backoff(place.failures, FIRST_DELAY, MAX_DELAY)
        self.look_at = min(self.look_at, place.not_before)
        if event.kind == UNFIT:
            self._bar(place, f"node {place.name}: {event.text}")
        elif place.failures >= MAX_QUICK_DEATHS and (not member.ready or self._others(place)):
            self._bar(place, f"node {place.name}: {place.failures} workers in a row died, the last: {event.text}")
        return member, reason

    def _others(self, place: SeenNode) -> bool:
        """Whether a node is left if this one gets no worker: those that die of chunks are given up with them."""
        return any(other is not place and not other.barred for other in self.places.values())

    def drop(self, worker: int) -> Member:
        self._cluster.end(worker)
        return self.members.pop(worker)

    def _bar(self, place: SeenNode, why: str) -> None:
        if not place.barred:
            log.error("%s", why)
        place.barred = why
        self.look_at = float("-inf")
