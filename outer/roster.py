"""Which workers there are, what each has in hand, and whether that can still be expected back.

Judged from heartbeats and from which files lie in the sync folder. Nothing here knows what is in a chunk.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

from outer.exchange import remove_pair, stem
from outer.heartbeat import ALIVE, DEAD, Beat, Watch, name_of, read_beat
from outer.machine import Files, Host

log = logging.getLogger("envolve")

MAX_LOSSES = 3  # chunks lost or rejected in a row, then a worker gets none for a while
BAR_SECONDS = 60.0


@dataclass
class Issue:
    """A piece of work in the hands of a worker."""

    index: int
    sha256: str  # of the input
    owner: str  # uuid of the worker's process
    at: float  # by the master's monotonic clock
    mode: str = ""  # of the chunk
    missed_at: tuple[str, int] | None = None  # uuid and counter of the worker when it was first missed


@dataclass
class Slot:
    """One worker id. ``settled``: known to be doing nothing."""

    id: int
    watch: Watch
    beat: Beat | None = None
    alive: bool = False
    settled: bool = False
    holds: Issue | None = None
    settles_at: int = 0  # an idle beat counts from this counter on; an older one may not know what was begun since
    absences: int = 0  # scans in a row without a heartbeat file
    losses: int = 0
    barred_until: float = 0.0
    odd_since: float | None = None  # since when its result files do not match

    def release(self) -> None:
        """Whatever it has is no longer waited for; it gets the next chunk when it says that it is idle."""
        self.holds, self.settled = None, False
        self.settles_at = self.beat.counter + 2 if self.beat is not None else 0


@dataclass
class Loss:
    """A chunk that will not come back. ``died``: its worker ended while working on it."""

    index: int
    reason: str
    died: bool


class Roster:
    """The slots of one BOHB-ID. ``timeout``: seconds without a beat until a worker counts as dead."""

    def __init__(self, files: Files, host: Host, bohb_id: int, timeout: float) -> None:
        self._files, self._host, self._bohb_id, self._timeout = files, host, bohb_id, timeout
        self._pattern = re.compile(rf"{bohb_id}_(0|[1-9]\d{{0,8}})_heartbeat")
        self.slots: dict[int, Slot] = {}

    def usable(self) -> list[Slot]:
        """Whoever is alive and not barred, by id."""
        now = self._host.monotonic()
        return sorted((s for s in self.slots.values() if s.alive and now >= s.barred_until), key=lambda s: s.id)

    def free(self) -> list[Slot]:
        return [slot for slot in self.usable() if slot.settled and slot.holds is None]

    def holders(self) -> Iterator[tuple[Slot, Issue]]:
        for slot in self.slots.values():
            if slot.holds is not None:
                yield slot, slot.holds

    def scan(self, names: set[str]) -> list[Loss]:
        """Reads all heartbeats; ``names`` is a list of the folder made before. Returns what was found to be lost."""
        for match in filter(None, map(self._pattern.fullmatch, names)):
            if int(match[1]) not in self.slots:
                self.slots[int(match[1])] = Slot(int(match[1]), Watch(self._host, self._timeout))
        losses = []
        for slot in self.slots.values():
            name = name_of(self._bohb_id, str(slot.id))
            beat = read_beat(self._files, name) if name in names else None
            # Two scans, as a network file system may leave out a file that is just being replaced.
            slot.absences = 0 if name in names else slot.absences + 1
            verdict = DEAD if slot.absences >= 2 else slot.watch.see(beat)
            if beat is not None:
                self._hear(slot, beat)
            self._announce(slot, verdict == ALIVE)
            if slot.holds is None:
                slot.settled |= beat is not None and beat.doing == "" and beat.counter >= slot.settles_at
            elif verdict == DEAD:
                losses.append(self._bury(slot, slot.holds, names))
            elif beat is not None and self._missing(slot, slot.holds, beat, names):
                losses.append(self._lose(slot, slot.holds, beat))
        return losses

    def _hear(self, slot: Slot, beat: Beat) -> None:
        old, slot.beat = slot.beat, beat
        if old is None or beat.uuid != old.uuid:
            slot.settled, slot.settles_at, slot.losses, slot.barred_until = False, 0, 0, 0.0
        if beat.note and (old is None or beat.note != old.note):
            log.warning("worker %d: %s", slot.id, beat.note)

    @staticmethod
    def _announce(slot: Slot, alive: bool) -> None:
        if alive and not slot.alive and slot.beat is not None:
            log.info("worker %d is there: %s", slot.id, slot.beat.where)
        elif slot.alive and not alive:
            log.warning("worker %d is gone", slot.id)
        slot.alive = alive

    def _bury(self, slot: Slot, issue: Issue, names: set[str]) -> Loss:
        name = stem(self._bohb_id, slot.id, "input")
        begun = name + "_check.pt" not in names
        dismissed = slot.absences >= 2  # it took its heartbeat away in good order: no fault of the chunk
        remove_pair(self._files, name)
        slot.release()
        return Loss(issue.index, f"worker {slot.id} died or fell silent", begun and not dismissed)

    def _missing(self, slot: Slot, issue: Issue, beat: Beat, names: set[str]) -> bool:
        """A chunk must be waiting, in work, or answered. False as long as it may be."""
        waiting = stem(self._bohb_id, slot.id, "input") + "_check.pt" in names
        answered = stem(self._bohb_id, slot.id, "result") + "_check.pt" in names
        if waiting or answered or beat.doing == issue.sha256:
            issue.missed_at = None
            return False
        # The beat may be older than the work, and the list of names older than the result: two more beats settle it.
        if issue.missed_at is None or issue.missed_at[0] != beat.uuid:
            issue.missed_at = (beat.uuid, beat.counter)
        return beat.counter >= issue.missed_at[1] + 2

    def _lose(self, slot: Slot, issue: Issue, beat: Beat) -> Loss:
        slot.release()
        if beat.uuid != issue.owner:
            return Loss(issue.index, f"worker {slot.id} died and was started anew", True)
        slot.losses += 1
        if slot.losses >= MAX_LOSSES:
            slot.barred_until = self._host.monotonic() + BAR_SECONDS
            what = f"it lost or rejected {slot.losses} in a row; see its log"
            log.error("worker %d gets no chunk for %.0f s: %s", slot.id, BAR_SECONDS, what)
        return Loss(issue.index, f"it was lost on the way to or from worker {slot.id}", False)
