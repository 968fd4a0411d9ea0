"""Workers of a master, the chunk that each has, and whether its result can still arrive.

Judged from heartbeats and from which files lie in the sync folder. Nothing here knows what is in a chunk.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

from envolve.outer.exchange.heartbeat import (
    ALIVE,
    DEAD,
    MISSED_BEATS,
    MOST_DIGITS,
    UNKNOWN,
    Beat,
    Watch,
    believed,
    name_of,
    other_code,
    read_beat,
)
from envolve.outer.exchange.lanes import Lanes, raise_first
from envolve.outer.exchange.machine import Files, Host, NotReady, Rejected
from envolve.outer.exchange.pairs import read_pair, remove_pair, stem
from envolve.outer.exchange.sources import sources

log = logging.getLogger("envolve")

MAX_LOSSES = 3  # chunks lost or rejected in a row, then a worker gets none for a while
BAR_SECONDS = 60.0
SCAN_SECONDS = 0.1  # of reading heartbeats in one look around; workers that are left over come first in the next


@dataclass
class Issue:
    """Chunk in the hands of a worker."""

    index: int
    sha256: str  # of the input
    owner: str  # uuid of the worker's process
    at: float  # by the master's monotonic clock
    mode: str = ""  # of the chunk
    missed_at: tuple[str, int] | None = None  # uuid and counter of the worker when it was first missed
    doubted: bool = False  # missed by later beats too; the list of names then was older than they


@dataclass
class Slot:
    """Slot of one worker id. ``settled``: known to be idle."""

    id: int
    watch: Watch
    beat: Beat | None = None
    alive: bool = False
    undecided: bool = False  # a beat from another machine that has not moved yet: life, or a file left behind
    settled: bool = False
    holds: Issue | None = None
    settles_at: int | None = 0  # an idle beat counts from this counter on; None: the next beat heard, and two more
    read_at: float = 0.0  # when its heartbeat is worth reading again
    absences: int = 0  # scans in a row without a heartbeat file
    losses: int = 0
    barred_until: float = 0.0
    odd_since: float | None = None  # since when its result files do not match
    strays: int = 0  # unexpected results
    compared: str = ""  # uuid of the process whose code was compared with this one's

    def release(self) -> None:
        """Forgets its chunk; the worker gets the next chunk when it says that it is idle."""
        # The beat known may be old, and the one being written may not know what was begun since.
        self.holds, self.settled, self.settles_at, self.read_at = None, False, None, 0.0


@dataclass
class Loss:
    """Chunk that will not come back. ``died``: its worker ended while working on it."""

    index: int
    reason: str
    died: bool


class Roster:
    """The slots of one BOHB-ID. ``timeout``: seconds without a beat until a worker counts as dead."""

    def __init__(self, files: Files, host: Host, bohb_id: int, timeout: float, lanes: Lanes | None = None) -> None:
        self._files, self._host, self._bohb_id, self._timeout = files, host, bohb_id, timeout
        self._lanes = lanes or Lanes(0)
        self._pattern = re.compile(rf"{bohb_id}_(0|[1-9]\d{{0,{MOST_DIGITS - 1}}})_heartbeat")
        self.slots: dict[int, Slot] = {}

    def usable(self) -> list[Slot]:
        """Live workers that are not barred, by id."""
        now = self._host.monotonic()
        return sorted((s for s in self.slots.values() if s.alive and now >= s.barred_until), key=lambda s: s.id)

    def barred(self) -> list[int]:
        """Live workers that get no chunk for now, by id."""
        now = self._host.monotonic()
        return sorted(s.id for s in self.slots.values() if s.alive and now < s.barred_until)

    def undecided(self) -> float:
        """Seconds until it is known of all workers whether they live; 0 if it is."""
        return max(
            (MISSED_BEATS * believed(s.beat) for s in self.slots.values() if s.undecided and s.beat), default=0.0
        )

    def free(self) -> list[Slot]:
        now = self._host.monotonic()
        idle = (s for s in self.slots.values() if s.holds is None and s.settled)  # few of many, as a rule
        return sorted((s for s in idle if s.alive and now >= s.barred_until), key=lambda s: s.id)

    def holders(self) -> Iterator[tuple[Slot, Issue]]:
        for slot in self.slots.values():
            if slot.holds is not None:
                yield slot, slot.holds

    def scan(self, names: set[str]) -> list[Loss]:
        """Judges all workers; ``names`` is a list of the folder made before. Returns what was found to be lost.

        A heartbeat is read once per beat (four times while something is in doubt), the one due longest first, and no
        more of them than fit into SCAN_SECONDS: where reading takes long, silence is noticed later, and nothing else.
        """
        found = {int(match[1]) for match in map(self._pattern.fullmatch, names) if match}
        for new in sorted(found - self.slots.keys()):  # sorted: the order of a set of names is another in every process
            self.slots[new] = Slot(new, Watch(self._host, self._timeout))
        missing = set()
        for slot in self.slots.values():
            if slot.id in found:
                slot.absences = 0
            else:
                missing.add(slot.id)
        now, losses = self._host.monotonic(), []
        for slot, beat in self._read(now, missing):
            # A network file system may leave a file out that is just being replaced: a look at the file itself counts
            # more than the list, and it takes two of both.
            if slot.id in missing:
                slot.absences = slot.absences + 1 if beat is None else 0
            verdict = DEAD if slot.absences >= 2 else slot.watch.see(beat)
            if beat is not None:
                self._hear(slot, beat)
            self._announce(slot, verdict == ALIVE)
            slot.undecided = verdict == UNKNOWN
            if slot.holds is None:
                slot.settled |= (
                    beat is not None
                    and beat.doing == ""
                    and slot.settles_at is not None
                    and beat.counter >= slot.settles_at
                )
            elif verdict == DEAD:
                losses.append(self._bury(slot, slot.holds))
            elif beat is not None and self._missing(slot, slot.holds, beat, names):
                losses.append(self._lose(slot, slot.holds, beat))
            slot.read_at = now + self._pause(slot, beat, verdict)
        return losses

    def _read(self, now: float, missing: set[int]) -> Iterator[tuple[Slot, Beat | None]]:
        """Slots to judge, with their beats if they have a file. ``missing``: not in the list."""
        slots = self.slots.values()
        due = sorted((s for s in slots if s.id in missing or s.read_at <= now), key=lambda s: s.read_at)
        due += [s for s in slots if s.id not in missing and s.read_at > now and s.alive and s.watch.ended()]
        size = max(1, 4 * self._lanes.count)
        for batch in (due[i : i + size] for i in range(0, len(due), size)):
            if self._host.monotonic() - now >= SCAN_SECONDS:
                return
            beats = self._lanes.map(self._beat, batch)
            raise_first(beats)
            yield from zip(batch, beats, strict=True)

    def _beat(self, slot: Slot) -> Beat | None:
        if slot.absences >= 2:  # workers missing twice count as gone until a list has them again: there may be many
            return None
        return read_beat(self._files, name_of(self._bohb_id, str(slot.id)))

    @staticmethod
    def _pause(slot: Slot, beat: Beat | None, verdict: str) -> float:
        """Seconds in which its heartbeat can have no relevant news."""
        if beat is None:
            return 0.0
        waiting = slot.holds.missed_at is not None if slot.holds is not None else not slot.settled
        interval = believed(beat)
        return interval / 4 if verdict == UNKNOWN or (waiting and verdict == ALIVE) else interval

    def _hear(self, slot: Slot, beat: Beat) -> None:
        old, slot.beat = slot.beat, beat
        if old is None or beat.uuid != old.uuid:
            slot.settled, slot.settles_at, slot.losses, slot.barred_until = False, 0, 0, 0.0
        elif slot.settles_at is None:
            slot.settles_at = beat.counter + 2
        if beat.note and (old is None or beat.note != old.note):
            log.warning("worker %d: %s", slot.id, beat.note)

    @staticmethod
    def _announce(slot: Slot, alive: bool) -> None:
        if alive and not slot.alive and slot.beat is not None:
            log.info("worker %d is there: %s", slot.id, slot.beat.where)
        elif slot.alive and not alive:
            log.warning("worker %d is gone", slot.id)
        slot.alive = alive
        if alive and slot.beat is not None and slot.beat.uuid != slot.compared:
            slot.compared = slot.beat.uuid
            if other := other_code(slot.beat, sources()):
                log.error("worker %d %s", slot.id, other)

    def _bury(self, slot: Slot, issue: Issue) -> Loss:
        name = stem(self._bohb_id, slot.id, "input")
        begun = not self._waits(name, issue)  # not from the list: it may be older than the death
        dismissed = slot.absences >= 2  # it took its heartbeat away in good order: no fault of the chunk
        beat = slot.beat  # of a process that lives, as the kernel says, and is stopped or starved: no fault either
        here = beat is not None and beat.machine == self._host.machine
        silent = beat is not None and here and self._host.alive(beat.pid, beat.started)
        remove_pair(self._files, name)
        slot.release()
        return Loss(issue.index, f"worker {slot.id} died or fell silent", begun and not dismissed and not silent)

    def _waits(self, name: str, issue: Issue) -> bool:
        """True if this very input lies there and has not been begun."""
        try:
            pair = read_pair(self._files, name, "input")
        except (NotReady, Rejected):
            return False
        return pair is not None and pair[1] == issue.sha256

    def _missing(self, slot: Slot, issue: Issue, beat: Beat, names: set[str]) -> bool:
        """Checks that a chunk is waiting, in work, or answered. False while it may be."""
        waiting = stem(self._bohb_id, slot.id, "input") + "_check.pt" in names
        answered = stem(self._bohb_id, slot.id, "result") + "_check.pt" in names
        if waiting or answered or beat.doing == issue.sha256:
            issue.missed_at, issue.doubted = None, False
            return False
        # The beat may be older than the work: two more settle it. The list of names may be older than the result that
        # the beat follows: the next list settles that.
        if issue.missed_at is None or issue.missed_at[0] != beat.uuid:
            issue.missed_at, issue.doubted = (beat.uuid, beat.counter), False
        if beat.counter < issue.missed_at[1] + 2:
            return False
        doubted, issue.doubted = issue.doubted, True
        return doubted

    def _lose(self, slot: Slot, issue: Issue, beat: Beat) -> Loss:
        slot.release()
        slot.settles_at = beat.counter + 2
        if beat.uuid != issue.owner:
            return Loss(issue.index, f"worker {slot.id} died and was started anew", True)
        self.blame(slot, "lost or rejected")
        return Loss(issue.index, f"it was lost on the way to or from worker {slot.id}", False)

    def blame(self, slot: Slot, what: str) -> None:
        """Records a loss that is the worker's fault; after MAX_LOSSES in a row it gets no chunk for a while. ``what``:
        what it did to the last of them."""
        slot.losses += 1
        if slot.losses >= MAX_LOSSES:
            slot.barred_until = self._host.monotonic() + BAR_SECONDS
            words = f"of its last chunks it {what} {slot.losses} in a row; see its log"
            log.error("worker %d gets no chunk for %.0f s: %s", slot.id, BAR_SECONDS, words)
