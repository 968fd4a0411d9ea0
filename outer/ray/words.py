"""What a pool on Ray says while it waits, so that no long wait is silent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from envolve.outer.exchange.backlog import Backlog
from envolve.outer.ray.staff import Member

log = logging.getLogger("envolve")

LONELY_SECONDS, HINT_SECONDS = 15.0, 60.0


class Words:
    """``members``: the workers, by number, as the pool has them."""

    def __init__(self, backlog: Backlog, members: Mapping[int, Member], clock: Callable[[], float]) -> None:
        self._backlog, self._members, self._clock = backlog, members, clock
        self._hint_at = clock()
        self._said: set[str] = set()

    def news(self) -> None:
        """Something was begun or has come in."""
        self._hint_at = self._clock()

    def once(self, text: str) -> None:
        """Logs a warning, once."""
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)

    def hint(self, now: float) -> None:
        """Logs a wait that is long."""
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
                for w, m in self._members.items()
                for s in m.out.values()
                if s.index in self._backlog.work
            ]
            log.info("no result for %.0f s; waiting for %s", HINT_SECONDS, ", ".join(out[:20]) or "a worker to be free")
