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

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from typing_extensions import Self

from envolve.outer.exchange.backlog import Backlog, Patience
from envolve.outer.exchange.engine import ChunkCheck, Unfit, evaluate_all
from envolve.outer.exchange.machine import Rejected
from envolve.outer.exchange.messages import Chunk, ChunkResult
from envolve.outer.ray.codec import answer_of
from envolve.outer.ray.evaluator import Versions
from envolve.outer.ray.events import ANSWER, DIED, FAILED, LOST, READY, UNFIT, Event
from envolve.outer.ray.letters import Letters
from envolve.outer.ray.staff import Cluster, Member, Sent, Staff
from envolve.outer.ray.words import Words

log = logging.getLogger("envolve")

TICK = 0.25  # seconds between looks at late chunks, and calls of on_wait
LOST_SECONDS = 1.0  # before a chunk for which there was no room is sent again
SHORT, SHORT_DEPTH = 0.02, 4  # chunks shorter than this are sent ahead, so that a worker need not wait for the next


class RayPool:
    """Hands chunks to workers of a Ray cluster. ``count``: how many workers, None: what the nodes have room for;
    ``mine``: versions that workers must have. ``on_wait`` is called four times per second while it waits."""

    def __init__(
        self,
        cluster: Cluster,
        run_id: str,
        mine: Versions,
        *,
        count: int | None = None,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run_id, self.on_wait = run_id, None  # type: str, Callable[[], None] | None
        self._cluster, self._clock = cluster, clock
        self._staff = Staff(cluster, mine, count, clock)
        self._members = self._staff.members
        self._backlog = Backlog(patience or Patience())
        self._free: deque[int] = deque()  # workers that may get a chunk; some of them may have died since
        self._check = ChunkCheck()
        self._letters = Letters(cluster)
        self._later: list[tuple[float, int]] = []  # chunks that wait until then
        self._unfit: Unfit | None = None
        self._tokens = 0  # how many there were
        self._ticked = float("-inf")
        self._words = Words(self._backlog, self._members, clock)

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
        self._words.news()
        while self._backlog.open(ticket):
            self._step()
        result = self._backlog.pop(ticket).result
        assert result is not None
        return result

    def first(self, tickets: Collection[int]) -> int:
        """Waits until one of these is answered -> that ticket, for :meth:`result`. Raises ExchangeError."""
        self._words.news()
        while not (found := self.answered(tickets)):
            self._step()
        return found[0]

    def answered(self, tickets: Collection[int]) -> list[int]:
        """Those of these tickets whose result is there."""
        return [ticket for ticket in tickets if not self._backlog.open(ticket)]

    def holders(self) -> list[tuple[int, int]]:
        return [(sent.index, w) for w, m in self._members.items() for sent in list(m.out.values())[:1]]

    def workers(self) -> list[int]:
        """Workers that can take a chunk; others may be starting."""
        self._handle_events(0.0)
        self._lose(self._staff.look())
        return sorted(w for w, m in self._members.items() if m.ready)

    def withdraw(self) -> None:
        """Cancels all waiting. Workers end what they have begun, and its result is dropped."""
        self._backlog.clear()
        self._letters.clear()
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
        if now >= self._staff.look_at:
            self._lose(self._staff.look())
        for at, index in self._later:
            if at <= now:
                self._again(index)
        self._later = [(at, index) for at, index in self._later if at > now]
        self._duplicate_late(now)
        if self.on_wait is not None:
            self.on_wait()
        self._words.hint(now)

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
            if self._staff.welcome(event.worker, event.value):
                self._idle(event.worker, member)
        elif event.kind == ANSWER:
            self._answered(event, member)
        elif event.kind in (FAILED, LOST) and event.token in member.out:
            index = member.out.pop(event.token).index
            self._idle(event.worker, member)
            if event.kind == FAILED:
                self._failed(index, event.worker, event.text)
            elif self._backlog.open(index):
                self._words.once(f"chunks are sent again: {event.text}")
                self._later.append((self._clock() + LOST_SECONDS, index))
        elif event.kind in (DIED, UNFIT):
            self._lose(*self._staff.bury(event))

    def _lose(self, members: Member | Sequence[Member], reason: str = "") -> None:
        """Sends the chunks of workers that are gone to others. ``reason``: what the one that was in work died of; those
        that were not begun are not blamed."""
        for member in [members] if isinstance(members, Member) else members:
            for place, sent in enumerate(member.out.values()):
                if place == 0 and reason:
                    self._backlog.died(sent.index, reason)
                self._again(sent.index)

    # ------------------------------------------------------------------------------------------------------- chunks

    def _depth(self, mode: str) -> int:
        usual = self._backlog.usual(mode)
        return SHORT_DEPTH if usual is not None and usual < SHORT else 1

    def _idle(self, worker: int, member: Member) -> None:
        if member.ready and worker not in self._free:
            self._free.append(worker)

    def _hand_out(self) -> None:
        """Gives waiting chunks to workers, those with the fewest first."""
        self._choose()
        self._cluster.flush()

    def _choose(self) -> None:
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
        chunk = replace(w.chunk, attempt=w.chunk.attempt + w.attempts) if w.attempts else w.chunk
        w.attempts += 1
        share = len(self._backlog.work) * chunk.worlds.numel() * 4 // len(self._members)
        data = self._letters.write(worker, member, chunk, share)
        self._tokens += 1
        member.out[self._tokens] = Sent(index, chunk.attempt, self._clock())
        self._cluster.send(worker, self._tokens, data)

    def _answered(self, event: Event, member: Member) -> None:
        sent, now = member.out.pop(event.token, None), self._clock()
        if sent is None:
            return
        seconds, member.answered_at = now - max(sent.at, member.answered_at), now
        self._staff.places[member.node].failures = 0
        if len(member.out) < SHORT_DEPTH:
            self._idle(event.worker, member)
        if not self._backlog.open(sent.index):
            return  # a duplicate: the same bytes from a second worker
        w = self._backlog.work[sent.index]
        if event.value == b"":
            self._letters.draws = False
            text = "a worker cannot draw worlds again as they were drawn here; whole worlds are sent from now on"
            self._words.once(text)
            self._again(sent.index)
            return
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
        self._words.news()

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
        sent = (max(s.at, m.answered_at) for m in self._members.values() for s in m.out.values())
        if now - min(sent, default=now) < self._backlog.patience.least:  # nothing can be late
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
