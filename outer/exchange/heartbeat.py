"""Signs of life: small JSON files that their owner rewrites, and their judgement by an observer.

``B_W_heartbeat`` belongs to a worker, ``B_master_heartbeat`` to the master. A file claims its slot: a process that
finds another's live heartbeat does not start, and a process that finds its own file replaced gives way, so of two that
start at the same time exactly one continues. A counter in the file increases with every beat, and the observer measures
by its own monotonic clock how long it has not changed, so clocks need not agree. On one machine the kernel is asked,
too. Python 3.8.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import uuid
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Callable, Dict, Optional, Tuple

from envolve.core.cleaning import one_line
from envolve.outer.exchange.machine import ExchangeError, Files, Host, NotReady, Rejected
from envolve.outer.exchange.sources import sources

log = logging.getLogger("envolve")

MAX_BEAT_BYTES = 8192
KNOWN, USUAL_BYTES = 8192, 1024  # workers that are remembered, and the most bytes of their files
MOST_DIGITS = 18  # of a worker's id; masters ignore longer ones
MAX_WORDS = 1000  # characters that a file has to say to people
ALIVE, DEAD, UNKNOWN = "alive", "dead", "unknown"
STARTING = "starting"  # what a worker is doing before it can take a chunk
MISSED_BEATS = 3  # this many intervals without a beat, and a slot may be taken over
LONGEST_INTERVAL = 60.0  # between beats: what a file says beyond it is not believed


@dataclass
class Beat:
    """Content of a heartbeat file. ``doing``: the SHA-256 of the input in evaluation, "" when idle, STARTING before
    that; ``note``: text for the other side to log; ``code``: which code it evaluates with (``sources.py``), "" if the
    file does not say: earlier versions and the workers of others need not."""

    uuid: str
    counter: int
    machine: str
    host: str
    pid: int
    started: int
    interval: float
    run_id: str = ""
    doing: str = ""
    note: str = ""
    code: str = ""

    @property
    def where(self) -> str:
        return f"pid {self.pid} on {self.host}"


_KINDS: Dict[str, Tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}
_FIELDS = {f.name: _KINDS[str(f.type)] for f in fields(Beat)}
_NEEDED = _FIELDS.keys() - {"code"}


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def name_of(bohb_id: int, who: str) -> str:
    return f"{bohb_id}_{who}_heartbeat"


# A beat as Envolve writes it, around the two values that change from one to the next. Quotation marks within a text
# have a backslash in JSON, so what stands between these is whole fields.
_WRITTEN = re.compile(
    rb'(\{"uuid": "[0-9a-f]{32}", "counter": )(0|[1-9][0-9]{0,14})'
    rb'(, "machine": .*, "doing": ")([0-9a-f]{64}|)(", "note": .*)',
    re.DOTALL,
)


def read_beat(files: Files, name: str) -> Optional[Beat]:
    """Reads a heartbeat; None, meaning no news, if the file is missing or is not a heartbeat."""
    try:
        data = files.read(name, MAX_BEAT_BYTES)
    except (NotReady, Rejected):
        return None
    if data is None:
        return None
    found = _WRITTEN.fullmatch(data) if len(data) <= USUAL_BYTES else None
    if found is None:
        return _parsed(data)
    begin, counter, middle, doing, end = found.groups()
    rest = _known(begin, middle, end)
    if rest is None:
        return _parsed(data)
    return replace(rest, counter=int(counter), doing=doing.decode())


@lru_cache(maxsize=KNOWN)
def _known(begin: bytes, middle: bytes, end: bytes) -> Optional[Beat]:
    """The fields of a worker that stay, beat after beat; None if this is no beat, or a field is there twice."""
    data = begin + b"0" + middle + end
    beat = _parsed(data)
    return beat if beat is not None and json.loads(data, object_pairs_hook=len) == len(json.loads(data)) else None


def _parsed(data: bytes) -> Optional[Beat]:
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if type(content) is not dict or not _NEEDED <= content.keys() <= _FIELDS.keys():
        return None
    for key, value in content.items():
        kinds = _FIELDS[key]
        if type(value) not in kinds or (type(value) is not str and not -(2**53) < value < 2**53):
            return None
        if type(value) is str and not (value.isascii() or _encodable(value)):  # JSON can hold texts that UTF-8 cannot
            return None
    if content["interval"] <= 0:
        return None
    words = content.keys() & {"host", "run_id", "note", "code"}  # they go to logs
    content.update({key: one_line(content[key], MAX_WORDS) for key in words})
    return Beat(**content)


class Watch:
    """Judgement of one heartbeat file from the beats seen in it, by the observer's clock. ``timeout``: seconds without
    a beat that count as death; at least three intervals of the file's owner."""

    def __init__(self, host: Host, timeout: float) -> None:
        self._host, self._timeout = host, timeout
        self._last: Optional[Beat] = None
        self._moved_at = 0.0
        self._seen_moving = False

    def see(self, beat: Optional[Beat]) -> str:
        """ALIVE, DEAD, or UNKNOWN: a beat from another machine that has not yet been seen to move."""
        now, last = self._host.monotonic(), self._last
        if beat is None:
            beat = last  # unreadable or removed: as if it had not moved
            if beat is None:
                return DEAD
        elif last is None or beat.uuid != last.uuid:
            self._last, self._moved_at, self._seen_moving = beat, now, False
        elif beat.counter != last.counter:
            self._last, self._moved_at, self._seen_moving = beat, now, True
        if beat.machine == self._host.machine and not self._host.alive(beat.pid, beat.started):
            return DEAD
        if now - self._moved_at > max(self._timeout, MISSED_BEATS * believed(beat)):
            return DEAD
        return ALIVE if self._seen_moving or beat.machine == self._host.machine else UNKNOWN

    def ended(self) -> bool:
        """True if the kernel knows that the process seen last has ended; needs no file access."""
        last = self._last
        if last is None or last.machine != self._host.machine:
            return False
        return not self._host.alive(last.pid, last.started)


def other_code(beat: Beat, mine: str) -> str:
    """What is to be said where the process of a beat runs other code than ``mine``; "" if it does not."""
    if beat.code == mine:
        return ""
    what = f"runs other code ({beat.code})" if beat.code else "does not say which code it runs"
    return f"{what}, here is {mine}: the same member may score otherwise; start both from one version"


def believed(beat: Beat) -> float:
    """Seconds between two beats, for a file with arbitrary content."""
    return min(beat.interval, LONGEST_INTERVAL)


def living_owner(files: Files, host: Host, name: str) -> Optional[Beat]:
    """Live owner of a heartbeat file, or None. Immediate on the same machine, up to three of the owner's intervals
    otherwise.

    A process of this machine that is alive but does not beat (it was stopped) still owns its slot.
    """
    beat = read_beat(files, name)
    if beat is None:
        return None
    if beat.machine == host.machine:
        return beat if host.alive(beat.pid, beat.started) else None
    watch = Watch(host, MISSED_BEATS * believed(beat))
    while True:
        verdict = watch.see(read_beat(files, name))
        if verdict != UNKNOWN:
            return beat if verdict == ALIVE else None
        host.sleep(believed(beat) / 4)


class Heartbeat:
    """Keeps one heartbeat file fresh: by hand with :meth:`beat`, and at every interval once :meth:`start` was called.

    ``doing`` and ``note`` may be set at any time and go out with the next beat. ``on_beat`` is called after every beat
    of the latter kind. ``usurper`` is set once another process owns the file.
    """

    def __init__(
        self,
        files: Files,
        host: Host,
        name: str,
        interval: float = 1.0,
        run_id: str = "",
        on_beat: Optional[Callable[[], None]] = None,
    ) -> None:
        self._files, self._host, self._name, self._on_beat = files, host, name, on_beat
        self.doing = self.note = ""
        own = uuid.uuid4().hex, 0, host.machine, host.name, host.pid, host.started, interval
        self._beat = Beat(*own, run_id=run_id, code=sources())
        self._lock = threading.Lock()
        self._cancel: Optional[Callable[[], None]] = None
        self._closed = self._failing = False
        self.usurper: Optional[Beat] = None

    @property
    def uuid(self) -> str:
        return self._beat.uuid

    def claim(self) -> Optional[Beat]:
        """Takes the slot and writes the first beat, or returns the present owner. Raises :class:`ExchangeError`."""
        owner = living_owner(self._files, self._host, self._name)
        if owner is None:
            self._write()
        return owner

    def beat(self) -> None:
        """Writes a beat, unless the file belongs to another process by now. A failed write is logged once."""
        with self._lock:
            if self._closed or self.usurper is not None:
                return
            other = read_beat(self._files, self._name)
            if other is not None and other.uuid != self._beat.uuid:
                self.usurper = other
                return
            self._beat.counter += 1
            try:
                self._write()
                self._failing = False
            except ExchangeError as e:
                if not self._failing:
                    log.error("no sign of life: %s", e)
                self._failing = True

    def _write(self) -> None:
        self._beat.doing, self._beat.note = self.doing, self.note
        self._files.write(self._name, json.dumps(asdict(self._beat)).encode("utf-8"))

    def start(self) -> None:
        """Beats every interval from now on."""
        self._cancel = self._host.every(self._beat.interval, self._tick)

    def _tick(self) -> None:
        self.beat()
        if self._on_beat is not None:
            self._on_beat()

    def close(self) -> None:
        """Stops beating and removes the file, unless it belongs to another process by now."""
        if self._cancel is not None:
            self._cancel()
        self._closed = True
        with self._lock:
            mine = read_beat(self._files, self._name)
            if mine is not None and mine.uuid == self._beat.uuid:
                try:
                    self._files.remove(self._name)
                except ExchangeError as e:
                    log.error("%s", e)
