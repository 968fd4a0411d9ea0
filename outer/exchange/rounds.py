"""Chunks in the hands of workers: what one look around collects, judges and hands out. ``dispatch.py`` says what can go
wrong and what is done about it; here it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from envolve.core.cleaning import one_line
from envolve.outer.exchange.backlog import Backlog
from envolve.outer.exchange.engine import Unfit
from envolve.outer.exchange.lanes import raise_first
from envolve.outer.exchange.machine import Host, NotReady, Rejected
from envolve.outer.exchange.mailbox import Found, Mailbox, batches
from envolve.outer.exchange.messages import ChunkResult
from envolve.outer.exchange.roster import Issue, Roster, Slot
from envolve.outer.exchange.worker import GRACE

log = logging.getLogger("envolve")


@dataclass(frozen=True)
class Issued:
    """Chunk that was sent, by its index in the backlog, and the only worker that may answer it."""

    index: int
    attempt: int
    worker: int


class Rounds:
    """Looks around for a master: :meth:`collect`, :meth:`scan` and :meth:`hand_out`, none of which waits.

    ``unfit``: what is wrong with the values of a result, "" if nothing is; None: they are not judged.
    """

    def __init__(self, host: Host, mailbox: Mailbox, roster: Roster, backlog: Backlog) -> None:
        self._host, self._mailbox, self._roster, self._backlog = host, mailbox, roster, backlog
        self._issued: dict[str, Issued] = {}  # by SHA-256 of the input
        self._sent: dict[int, list[str]] = {}  # by index of the chunk, all that it was sent with
        self.unfit: Unfit | None = None
        self.scanned_at = float("-inf")
        self._look_for_late = False  # once per scan: a chunk is late after seconds
        self.accepted_at: float | None = None  # when the last result was accepted; the reader may reset it

    def forget(self, ticket: int | None = None) -> None:
        """Forgets this chunk, or all. Later answers to it are discarded."""
        for index in list(self._sent) if ticket is None else [ticket]:
            for sha256 in self._sent.pop(index, ()):
                self._issued.pop(sha256, None)

    # ------------------------------------------------------------------------------------------------ results

    def collect(self, names: Collection[str]) -> bool:
        """Takes what workers have answered; False if nothing happened."""
        moved = False
        for some in batches(self._mailbox.answered(self._roster.slots.keys(), names)):
            slots = [self._roster.slots[i] for i in some]
            moved |= any([self._collect(slot, found) for slot, found in zip(slots, self._mailbox.fetch(some))])
        return moved

    def _collect(self, slot: Slot, found: Found) -> bool:
        """Handles what was found where a result should be; False if it has to be checked again."""
        if found is None:
            return False
        now = self._host.monotonic()
        if isinstance(found, (NotReady, Rejected)):
            slot.odd_since = now if slot.odd_since is None else slot.odd_since
            if isinstance(found, NotReady) and now - slot.odd_since < GRACE:
                return False
            aside = self._mailbox.reject(slot.id)  # the heartbeat will show that the worker has nothing left for us
            log.warning("rejected a result of worker %d, now in %s: %s", slot.id, aside, found)
            slot.odd_since = None
            return True
        if isinstance(found, Exception):
            raise found
        slot.odd_since, result, held = None, found, slot.holds
        if held is None or held.sha256 == result.input_sha256:
            slot.holds, slot.settled = None, True
        issued = self._issued.get(result.input_sha256)
        if issued is None or issued.worker != slot.id:  # what another was asked is that one's to answer
            self._stray(slot, result)
            return True
        # once: a network file system may show a result again, and an exception must not count twice
        del self._issued[result.input_sha256]
        if self._backlog.open(issued.index):  # else a duplicate: the same bytes from a second worker
            self._accept(issued, result, slot, now - held.at if held and held.sha256 == result.input_sha256 else None)
        return True

    def _stray(self, slot: Slot, result: ChunkResult) -> None:
        slot.strays += 1
        if slot.strays & (slot.strays - 1) == 0:  # the first, second, fourth ...: there may be any number
            name = f"run {result.run_id}, generation {result.generation}, chunk {result.chunk_id}"
            times = f", the {slot.strays}th" if slot.strays > 3 else ""
            log.info("discarded a result of worker %d that is not expected%s: %s", slot.id, times, one_line(name))

    def _accept(self, issued: Issued, result: ChunkResult, slot: Slot, seconds: float | None) -> None:
        """Accepts a result. seconds: time that it took, None: unknown."""
        index, now = issued.index, self._host.monotonic()
        work = self._backlog.work[index]
        chunk = work.chunk
        identity = (result.run_id, result.generation, result.chunk_id, result.attempt, len(result.reasons))
        wrong = ""
        if identity != (chunk.run_id, chunk.generation, chunk.chunk_id, issued.attempt, len(chunk.seeds)):
            wrong = "it says that it is another, or has another number of members"
        elif not result.error and self.unfit is not None:
            wrong = self.unfit(result)
        if wrong:  # the fault of the worker alone: the chunk is as good as before
            log.warning("discarded the result of worker %d for %s: %s", slot.id, chunk.label, wrong)
            self._roster.blame(slot, "answered wrongly")
            self._backlog.shun(index, slot.id, now)
            self._again(index)
            return
        if result.error:
            log.warning("%s failed at worker %d: %s", chunk.label, slot.id, result.error)
            self._backlog.shun(index, slot.id, now)
            if self._backlog.failed(index):
                self._again(index)
                return
        else:
            slot.losses = 0
        if seconds is not None:
            self._backlog.took(chunk.mode, seconds)
        work.result = result
        self.accepted_at = now

    # ------------------------------------------------------------------------------------------------ workers

    def scan(self, names: set[str]) -> None:
        """Reads heartbeats: chunks of the dead and of the silent go out again."""
        self.scanned_at, self._look_for_late = self._host.monotonic(), True
        for loss in self._roster.scan(names):
            if not self._backlog.open(loss.index):
                continue
            log.warning("%s is sent again: %s", self._backlog.work[loss.index].chunk.label, loss.reason)
            if loss.died:
                self._backlog.died(loss.index, loss.reason)
            self._again(loss.index)
        for index in self._backlog.hopeless(self._held(), len(self._roster.usable())):
            out = [slot for slot, issue in self._roster.holders() if issue.index == index]
            ids = ", ".join(str(slot.id) for slot in out)
            self._backlog.give_up(index, f"no answer from worker {ids} for much longer than usual; given up")
            for slot in out:
                slot.release()

    # ------------------------------------------------------------------------------------------------ chunks

    def hand_out(self) -> bool:
        """Gives chunks to workers that are free; False if nothing happened."""
        moved = False
        waiting = self._backlog.waiting()
        if not waiting and not self._look_for_late:
            return False
        free = self._roster.free()
        usable = [slot.id for slot in self._roster.usable()] if free and waiting else []
        for some in batches(free) if waiting else ():
            now = self._host.monotonic()
            found = [(slot, self._backlog.next(slot.id, usable, now)) for slot in some]
            fresh = [(slot, index) for slot, index in found if index is not None]
            self._issue(fresh)
            moved |= bool(fresh)
        for slot in (s for s in free if s.holds is None) if self._look_for_late else ():
            index = self._backlog.straggler(self._held())
            if index is None:
                break
            log.info("%s is late; also sent to worker %d", self._backlog.work[index].chunk.label, slot.id)
            self._issue([(slot, index)])
            moved = True
        self._look_for_late = False
        return moved

    def _held(self) -> dict[int, list[float]]:
        """Seconds for which the holders of each chunk have had it."""
        now = self._host.monotonic()
        held: dict[int, list[float]] = {}
        for _, issue in self._roster.holders():
            held.setdefault(issue.index, []).append(now - issue.at)
        return held

    def _issue(self, pairs: Sequence[tuple[Slot, int]]) -> None:
        chunks = []
        for slot, index in pairs:
            work = self._backlog.work[index]
            chunks.append((slot.id, replace(work.chunk, attempt=work.chunk.attempt + work.attempts)))
            work.attempts += 1
        put = self._mailbox.put(chunks)
        for (slot, index), (_, chunk), sha256 in zip(pairs, chunks, put):
            if isinstance(sha256, Exception):
                self._again(index)
                continue
            self._issued[sha256] = Issued(index, chunk.attempt, slot.id)
            self._sent.setdefault(index, []).append(sha256)
            owner = slot.beat.uuid if slot.beat is not None else ""
            slot.holds, slot.settled = Issue(index, sha256, owner, self._host.monotonic(), chunk.mode), False
        raise_first(put)

    def _again(self, index: int) -> None:
        self._backlog.again(index, {issue.index for _, issue in self._roster.holders()})
