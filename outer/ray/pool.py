"""The driver's side on Ray: chunks out, results in, whatever dies in between. Behind the same interface as the file
exchange (``outer/exchange/engine.py``) and with its backlog, so the same chunks give the same bytes.

Workers keep torch and compiled kernels loaded. Each node gets as many as it has cores (or GPUs); nodes may come and go.
What can go wrong, and what is done:

- a worker or its node dies: its chunks go to others, a new worker is started; five deaths of one chunk give NaN;
- the evaluation raises: once more, elsewhere if possible, then NaN with the exception as the reason;
- a chunk takes much longer than the others: other workers get it too, the first answer counts;
- an answer is lost, or there is no room for a chunk in the object store: again, after a pause;
- a node has other versions, or cannot start a worker: it gets none, and the log says why; without any other, an error.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from typing_extensions import Self

from envolve.outer.exchange.backlog import Backlog, Patience
from envolve.outer.exchange.engine import ChunkCheck, Unfit, evaluate_all
from envolve.outer.exchange.machine import ExchangeError, Rejected
from envolve.outer.exchange.messages import Chunk, ChunkResult
from envolve.outer.exchange.pairs import pack
from envolve.outer.ray.cluster import ANSWER, FAILED, LOST, READY, UNFIT, Event, Node
from envolve.outer.ray.codec import answer_of, work
from envolve.outer.ray.evaluator import CONFIGS, Versions, differences

log = logging.getLogger("envolve")

TICK = 0.25  # seconds between looks at late chunks, and calls of on_wait
LOOK_SECONDS = 1.0  # between looks at the nodes
LOST_SECONDS = 1.0  # before a chunk for which there was no room is sent again
LONELY_SECONDS, HINT_SECONDS = 15.0, 60.0
MAX_QUICK_DEATHS = 10  # of a node's workers in a row, before any has answered
FIRST_DELAY, MAX_DELAY = 0.1, 10.0  # seconds before a worker is started in the place of a dead one
SHORT, SHORT_DEPTH = 0.02, 4  # chunks shorter than this are sent ahead, so that a worker need not wait for the next


class Cluster(Protocol):
    """What the pool needs of ``outer/ray/cluster.py``; tests have another."""

    events: queue.SimpleQueue[Event]

    def nodes(self) -> list[Node]: ...

    def request(self, workers: int) -> None: ...

    def begin(self, worker: int, node: str) -> None: ...

    def learn(self, worker: int, key: str, config: bytes) -> None: ...

    def send(self, worker: int, token: int, data: bytes) -> None: ...

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


@dataclass
class Place:
    """A node that was seen. ``barred``: why it gets no worker."""

    name: str
    failures: int = 0
    not_before: float = 0.0
    barred: str = ""


class RayPool:
    """Hands chunks to workers of a Ray cluster. ``count``: how many workers, None: what the nodes have room for;
    ``mine``: versions that workers must have. ``on_wait`` is called four times per second while it waits."""

    def __init__(
        self, cluster: Cluster, run_id: str, mine: Versions, *, count: int | None = None,
        patience: Patience | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.run_id, self.on_wait = run_id, None  # type: str, Callable[[], None] | None
        self._cluster, self._mine, self._count, self._clock = cluster, mine, count, clock
        self._backlog = Backlog(patience or Patience())
        self._members: dict[int, Member] = {}
        self._places: dict[str, Place] = {}
        self._free: deque[int] = deque()  # workers that may get a chunk; some of them may have died since
        self._check = ChunkCheck()
        self._configs: dict[int, tuple[dict[str, Any], str, bytes]] = {}  # by id of the configuration
        self._later: list[tuple[float, int]] = []  # chunks that wait until then
        self._unfit: Unfit | None = None
        self._workers = self._tokens = 0  # how many there were
        self._ticked = self._looked = float("-inf")
        self._hint_at = clock()
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------- as an Engine

    def evaluate(self, chunks: Sequence[Chunk], unfit: Unfit | None = None) -> list[ChunkResult]:
        self._unfit = unfit
        try:
            return evaluate_all(self, chunks)
        finally:
            self._unfit = None

    def submit(self, chunk: Chunk) -> int:
        self._check(chunk)
        return self._backlog.add(chunk)

    def result(self, ticket: int) -> ChunkResult:
        self._hint_at = self._clock()
        while self._backlog.open(ticket):
            self._step()
        result = self._backlog.pop(ticket).result
        assert result is not None
        return result

    def holders(self) -> list[tuple[int, int]]:
        return [(sent.index, w) for w, m in self._members.items() for sent in list(m.out.values())[:1]]

    def workers(self) -> list[int]:
        """Workers that can take a chunk; others may be starting."""
        self._handle_events(0.0)
        self._look()
        return sorted(w for w, m in self._members.items() if m.ready)

    def withdraw(self) -> None:
        """Cancels all waiting. Workers end what they have begun, and its result is dropped."""
        self._backlog.clear()
        self._configs.clear()
        self._later.clear()

    def close(self, quit_workers: bool = False) -> None:
        self._members.clear()
        self._cluster.close()

    # ------------------------------------------------------------------------------------------------ one look around

    def _step(self) -> None:
        """Waits for news for a moment, then hands out."""
        now = self._clock()
        if now - self._ticked >= TICK:
            self._tick(now)
        self._hand_out()
        self._handle_events(max(0.0, self._ticked + TICK - self._clock()))
        self._hand_out()

    def _tick(self, now: float) -> None:
        self._ticked = now
        if now - self._looked >= LOOK_SECONDS:
            self._look()
        for at, index in self._later:
            if at <= now:
                self._again(index)
        self._later = [(at, index) for at, index in self._later if at > now]
        self._duplicate_late(now)
        if self.on_wait is not None:
            self.on_wait()
        self._hint(now)

    def _handle_events(self, timeout: float) -> None:
        """Handles what has happened; waits for the first event at most ``timeout`` seconds."""
        events = self._cluster.events
        with_wait = timeout > 0
        while True:
            try:
                event = events.get(timeout=timeout) if with_wait else events.get_nowait()
            except queue.Empty:
                return
            with_wait = False
            if event.worker in self._members:
                self._handle(event, self._members[event.worker])

    def _handle(self, event: Event, member: Member) -> None:
        if event.kind == READY:
            self._welcome(event.worker, member, event.value)
        elif event.kind == ANSWER:
            self._answered(event, member)
        elif event.kind in (FAILED, LOST) and event.token in member.out:
            index = member.out.pop(event.token).index
            self._idle(event.worker, member)
            if event.kind == FAILED:
                self._failed(index, event.worker, event.text)
            elif self._backlog.open(index):
                self._say(f"chunks are sent again: {event.text}")
                self._later.append((self._clock() + LOST_SECONDS, index))
        else:
            self._bury(event, member)

    # ------------------------------------------------------------------------------------------------ nodes and workers

    def _look(self) -> None:
        """Starts workers where there is room. Raises ExchangeError if there can be none."""
        self._looked = now = self._clock()
        nodes, mine = self._cluster.nodes(), list(self._members.values())
        room = self._count if self._count is not None else sum(n.slots for n in nodes)
        if self._count is not None and self._count > sum(n.slots for n in nodes):
            self._cluster.request(self._count)
        for node in nodes:
            place = self._places.setdefault(node.id, Place(node.name))
            missing = min(node.slots - sum(m.node == node.id for m in mine), room - len(self._members))
            if missing <= 0 or place.barred or now < place.not_before:
                continue
            for _ in range(missing if not place.failures else 1):  # one after the other where the last one died
                self._workers += 1
                self._members[self._workers] = Member(node.id)
                self._cluster.begin(self._workers, node.id)
        live = {node.id for node in nodes}
        for worker, member in list(self._members.items()):
            if member.node not in live and not member.ready:  # a node that is gone starts no worker any more
                self._drop(worker)
        barred = [self._places[node.id].barred for node in nodes]
        if barred and all(barred) and not self._members:
            raise ExchangeError(f"no worker can be started on Ray: {barred[0]}")

    def _welcome(self, worker: int, member: Member, said: dict[str, str]) -> None:
        place = self._places[member.node]
        other = differences(self._mine, said)
        if other:
            self._bar(place, f"node {place.name} has {', '.join(other)}; install the same on all nodes")
            self._drop(worker)
            return
        if int(said.get("nice", "0")) > 0:
            self._say(f"workers of node {place.name} run at niceness {said['nice']}; start Ray with "
                      "RAY_worker_niceness=0 there for the full speed")  # fmt: skip
        member.ready, member.answered_at = True, self._clock()
        log.info("worker %d is there: pid %s on %s", worker, said.get("pid"), place.name)
        self._idle(worker, member)

    def _bury(self, event: Event, member: Member) -> None:
        """A worker has died; those of its chunks that it had not begun are not blamed."""
        place = self._places[member.node]
        reason = f"worker {event.worker} on {place.name} died: {event.text}"
        log.warning("%s", reason)
        self._drop(event.worker, reason)
        if event.kind == UNFIT:
            self._bar(place, f"node {place.name}: {event.text}")
            return
        place.failures += 1
        place.not_before = self._clock() + min(FIRST_DELAY * 2**place.failures, MAX_DELAY)
        if place.failures >= MAX_QUICK_DEATHS and not any(m.node == member.node for m in self._members.values()):
            self._bar(place, f"node {place.name}: {place.failures} workers in a row died, the last: {event.text}")
        self._looked = min(self._looked, place.not_before - LOOK_SECONDS)

    def _drop(self, worker: int, reason: str = "") -> None:
        """Forgets a worker; ``reason``: what the chunk that it had begun died of."""
        member = self._members.pop(worker)
        self._cluster.end(worker)
        for place, sent in enumerate(member.out.values()):
            if place == 0 and reason:
                self._backlog.died(sent.index, reason)
            self._again(sent.index)

    def _bar(self, place: Place, why: str) -> None:
        if not place.barred:
            log.error("%s", why)
        place.barred = why

    # ------------------------------------------------------------------------------------------------------- chunks

    def _depth(self, mode: str) -> int:
        usual = self._backlog.usual(mode)
        return SHORT_DEPTH if usual is not None and usual < SHORT else 1

    def _idle(self, worker: int, member: Member) -> None:
        if member.ready and worker not in self._free:
            self._free.append(worker)

    def _hand_out(self) -> None:
        """Gives waiting chunks to workers, those with the fewest first."""
        for _ in range(len(self._free) * SHORT_DEPTH):
            if not self._free or not self._backlog.waiting():
                return
            worker = self._free.popleft()
            member = self._members.get(worker)
            if member is None:
                continue
            index = self._backlog.next(worker, self._members, self._clock())
            if index is None:  # what waits is for others
                self._free.append(worker)
                return
            self._send(worker, member, index)
            if len(member.out) < self._depth(self._backlog.work[index].chunk.mode):
                self._free.append(worker)

    def _send(self, worker: int, member: Member, index: int) -> None:
        w = self._backlog.work[index]
        chunk = replace(w.chunk, attempt=w.chunk.attempt + w.attempts)
        w.attempts += 1
        key, config = self._config(chunk.config)
        if key not in member.knows:
            self._cluster.learn(worker, key, config)
            member.knows[key] = None
            while len(member.knows) > CONFIGS:
                member.knows.popitem(last=False)
        self._tokens += 1
        member.out[self._tokens] = Sent(index, chunk.attempt, self._clock())
        self._cluster.send(worker, self._tokens, work(chunk, key))

    def _config(self, config: dict[str, Any]) -> tuple[str, bytes]:
        found = self._configs.get(id(config))
        if found is None:
            data = pack({"config": config})
            found = self._configs[id(config)] = (config, hashlib.sha256(data).hexdigest(), data)
        return found[1], found[2]

    def _answered(self, event: Event, member: Member) -> None:
        sent, now = member.out.pop(event.token, None), self._clock()
        if sent is None:
            return
        seconds, member.answered_at = now - max(sent.at, member.answered_at), now
        self._places[member.node].failures = 0
        if len(member.out) < SHORT_DEPTH:
            self._idle(event.worker, member)
        if not self._backlog.open(sent.index):
            return  # a duplicate: the same bytes from a second worker
        w = self._backlog.work[sent.index]
        try:
            result = answer_of(event.value)
            wrong = "" if result.error or self._unfit is None else self._unfit(result)
            identity = (result.generation, result.chunk_id, result.attempt, len(result.reasons))
            if identity != (w.chunk.generation, w.chunk.chunk_id, sent.attempt, len(w.chunk.seeds)):
                wrong = "it answers another chunk"
        except Rejected as e:
            wrong = str(e)
        if wrong or result.error:
            self._failed(sent.index, event.worker, wrong or result.error, None if wrong else result)
            return
        self._backlog.took(w.chunk.mode, seconds)
        w.result = result
        self._hint_at = now

    def _failed(self, index: int, worker: int, text: str, result: ChunkResult | None = None) -> None:
        """An evaluation raised, or returned what no evaluation returns."""
        if not self._backlog.open(index):
            return
        w = self._backlog.work[index]
        log.warning("%s failed at worker %d: %s", w.chunk.label, worker, text)
        self._backlog.shun(index, worker, self._clock())
        if self._backlog.failed(index):
            self._again(index)
        else:
            w.result = result or ChunkResult.failed(w.chunk, "", text)

    def _held(self, now: float) -> dict[int, list[float]]:
        """Seconds for which the holders of each chunk have had it; a chunk that waits behind another is as late."""
        held: dict[int, list[float]] = {}
        for member in self._members.values():
            for sent in member.out.values():
                held.setdefault(sent.index, []).append(now - max(sent.at, member.answered_at))
        return held

    def _duplicate_late(self, now: float) -> None:
        """Gives late chunks to idle workers, too, and gives up those that hang everywhere."""
        if self._backlog.waiting() or not self._backlog.work:
            return
        held = self._held(now)
        idle = [w for w in self._free if w in self._members and not self._members[w].out]
        for worker in idle:
            index = self._backlog.straggler(held)
            if index is None:
                break
            log.info("%s is late; also sent to worker %d", self._backlog.work[index].chunk.label, worker)
            self._free.remove(worker)
            self._send(worker, self._members[worker], index)
            held[index].append(0.0)
        for index in self._backlog.hopeless(held, len(self._members)):
            self._backlog.give_up(index, "no answer from any worker for much longer than usual; given up")

    def _again(self, index: int) -> None:
        self._backlog.again(index, {s.index for m in self._members.values() for s in m.out.values()})

    # -------------------------------------------------------------------------------------------------------- words

    def _say(self, text: str) -> None:
        """Logs a warning, once."""
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)

    def _hint(self, now: float) -> None:
        """Logs long waits, so that none is silent."""
        lonely = not any(m.ready for m in self._members.values())
        if now - self._hint_at < (LONELY_SECONDS if lonely else HINT_SECONDS):
            return
        if lonely:
            self._hint_at = now + HINT_SECONDS - LONELY_SECONDS
            starting = len(self._members)
            log.warning("no worker on Ray yet; %s", f"{starting} are starting" if starting else "no node has room")
        else:
            self._hint_at = now
            out = [
                f"worker {w} ({self._backlog.work[s.index].chunk.label}, {now - s.at:.0f} s)"
                for w, m in self._members.items() for s in m.out.values() if s.index in self._backlog.work
            ]  # fmt: skip
            log.info("no result for %.0f s; waiting for %s", HINT_SECONDS, ", ".join(out[:20]) or "a worker to be free")
