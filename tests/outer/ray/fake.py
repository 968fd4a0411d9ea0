"""A Ray cluster in one process: real workers' objects and messages, a clock that moves when somebody waits."""

from __future__ import annotations

import queue
from collections import deque
from typing import Any, Callable, Dict, List

from envolve.outer.ray.cluster import Node
from envolve.outer.ray.evaluator import Evaluator, setup
from envolve.outer.ray.events import ANSWER, DIED, READY, UNFIT, Event
from envolve.outer.ray.pool import RayPool
from tests.outer.virtual import fake

MINE = {"Python": "3.11", "envolve": "1"}
Script = Callable[["FakeCluster", int, int, bytes], bool]


class Events:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster, self.waiting = cluster, deque()

    def put(self, event: Event) -> None:
        self.waiting.append(event)

    def get_nowait(self) -> Event:
        if not self.waiting:
            raise queue.Empty
        return self.waiting.popleft()

    def get(self, timeout: float) -> Event:
        if not self.waiting:
            self.cluster.pass_time(timeout)
        return self.get_nowait()


class FakeCluster:
    """``slots``: of each node; ``versions``: of each node, if they differ. ``script``: called for every chunk that is
    sent, with this, the worker, the token and the bytes; True: it has done what happens instead of the evaluation.
    ``seconds``: that an evaluation takes."""

    def __init__(self, slots: Dict[str, int], evaluate: Any = fake, script: Any = None, seconds: float = 1.0) -> None:
        self.slots, self.evaluate, self.script, self.seconds = slots, evaluate, script, seconds
        self.versions: Dict[str, Dict[str, str]] = {}
        self.now, self.events = 0.0, Events(self)
        self.objects: Dict[int, Evaluator] = {}
        self.place: Dict[int, str] = {}
        self.busy_until: Dict[int, float] = {}
        self.due: List[Any] = []
        self.sent: List[int] = []  # the worker of every chunk
        self.waiting: List[Any] = []  # what is sent at the next flush
        self.requested = 0
        self.closed = False
        self.unfit: Dict[str, str] = {}  # nodes that cannot start a worker

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        self.due.sort(key=lambda d: d[0])
        if self.due and self.due[0][0] <= end:
            at, event = self.due.pop(0)
            self.now = max(self.now, at)
            self.events.put(event)
        else:
            self.now = end

    def nodes(self) -> List[Node]:
        return [Node(name, name, slots) for name, slots in self.slots.items()]

    def request(self, workers: int) -> None:
        self.requested = workers

    def begin(self, worker: int, node: str) -> None:
        self.place[worker] = node
        if node in self.unfit:
            self.events.put(Event(UNFIT, worker, text=self.unfit[node]))
            return
        self.objects[worker] = Evaluator(setup("run", {}), lambda: self.evaluate)
        self.objects[worker].hello()
        self.busy_until[worker] = self.now
        self.events.put(Event(READY, worker, value={**MINE, "pid": "1", "nice": "0", **self.versions.get(node, {})}))

    def learn(self, worker: int, key: str, config: bytes) -> None:
        self.objects[worker].learn(key, config)

    def send(self, worker: int, token: int, data: bytes) -> None:
        self.waiting.append((worker, token, data))

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            self._deliver(*one)

    def _deliver(self, worker: int, token: int, data: bytes) -> None:
        self.sent.append(worker)
        if self.script is not None and self.script(self, worker, token, data):
            return
        if self.busy_until[worker] == float("inf"):
            return
        value = self.objects[worker].evaluate(data)
        self.busy_until[worker] = max(self.now, self.busy_until[worker]) + self.seconds
        self.due.append((self.busy_until[worker], Event(ANSWER, worker, token, value)))

    def die(self, worker: int, text: str = "killed") -> None:
        self.due = [(at, event) for at, event in self.due if event.worker != worker]
        self.events.put(Event(DIED, worker, text=text))

    def die_once_begun(self, worker: int) -> None:
        """When the worker has done what was sent to it before; what was sent after it is lost with it."""
        at = max(self.now, self.busy_until[worker])
        self.busy_until[worker] = float("inf")
        self.due.append((at, Event(DIED, worker, text="killed")))

    def kill_node(self, node: str) -> None:
        del self.slots[node]
        for worker in [w for w, n in self.place.items() if n == node and w in self.objects]:
            self.die(worker, "its node has died")

    def end(self, worker: int) -> None:
        self.objects.pop(worker, None)

    def close(self) -> None:
        self.closed = True


def pool(cluster: FakeCluster, **options: Any) -> RayPool:
    return RayPool(cluster, "run", MINE, clock=lambda: cluster.now, **options)
