"""What goes wrong, and how often: every seed draws some kinds of faults and their rates.

Every kind has random numbers of its own, so that a seed whose failure needs three kinds still fails, mostly, when the
others are dropped. No fault begins after ``end``; what was delayed has arrived a few seconds later.
"""

from __future__ import annotations

import errno
import random
from typing import Any, Dict, FrozenSet, List, Optional, Tuple

# What a network file system, a network or a person may do, and when.
KINDS: Dict[str, str] = {
    # files: what NFS version 3 and 4 do as they are
    "stale": "names and listings as they were some seconds ago (attribute, directory and negative-entry caches)",
    "again": "for a while the folder is shown as it was before: a removed file is there again, an old version too",
    "gaps": "a listing leaves out a file that is just being replaced",
    "handle": "ESTALE from a read or a listing",
    "repeat": "a rename or a remove succeeds, the answer gets lost, and the client's second try says ENOENT",
    "remove twice": "a remove is repeated on the way and takes away the file that was put there meanwhile",
    # files: what a weaker file system does, or NFS with async exports when the server crashes
    "delay": "changes reach the others up to some seconds late, in order",
    "reorder": "the same, in another order for different files",
    "lost": "a file does not arrive, though its writer was told so",
    "torn": "half of a file arrives; the rest later or never",
    "replay": "an older version of a file takes the place of a newer one (server restored, write repeated)",
    "full": "no space left on the device for a while",
    # processes
    "beats": "heartbeats do not arrive",
    "kill worker": "SIGKILL before or after any operation of a worker",
    "kill master": "SIGKILL before or after any operation of a master",
    "term": "SIGTERM or Ctrl-C at any operation: the process takes its heartbeat away and ends",
    "pause": "SIGSTOP, and SIGCONT later",
    "twin": "a second worker with the same ids, by mistake or because the first seemed dead",
    "rival": "a second master with the same BOHB-ID, of another run or of this one",
    "clocks": "clocks that run at other speeds",
    "slow": "evaluations that take much longer than others",
    "errors": "an evaluation raises an exception, once",
    "old": "files of other runs lie in the folder, or are put there while the run goes on",
    "network": "operations take up to a second",
}
ALL = frozenset(KINDS)


class Faults:
    def __init__(
        self,
        world: Any,
        seed: int,
        end: float,
        drop: FrozenSet[str],
        only: Optional[FrozenSet[str]],
        may: FrozenSet[str],
    ) -> None:
        self.world, self.end = world, end
        rng = random.Random(f"{seed} kinds")
        share = rng.choice([0.15, 0.3, 0.5, 0.8])
        drawn = {kind for kind in KINDS if rng.random() < share}
        self.kinds = (drawn & may if only is None else only) - drop if end > 0 else frozenset()
        self._rng = {kind: random.Random(f"{seed} {kind}") for kind in KINDS}
        self.rate = {kind: r.choice([0.01, 0.03, 0.1]) for kind, r in self._rng.items()}
        self.longest = rng.choice([0.5, 2.0, 6.0])  # seconds that a file system may lag
        self.counts: Dict[str, int] = dict.fromkeys(KINDS, 0)
        self.log: List[Tuple[float, str, str]] = []
        self._look = [kind in self.kinds for kind in ("stale", "again")]

    def on(self, kind: str) -> bool:
        return kind in self.kinds and self.world.now < self.end

    def happens(self, kind: str, what: str, rate: Optional[float] = None) -> bool:
        """Draws whether this fault happens now, and notes it if so."""
        if kind not in self.kinds or self.world.now >= self.end:
            return False
        if self._rng[kind].random() >= (self.rate[kind] if rate is None else rate):
            return False
        self.note(kind, what)
        return True

    def note(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        process = self.world.scheduler.current.process.name
        self.log.append((self.world.now, kind, f"{process}: {what}"))
        self.world.say(f"fault {kind}: {what}")

    def draw(self, kind: str, low: float, high: float) -> float:
        return self._rng[kind].uniform(low, high)

    # ---------------------------------------------------------------------------------------------- looking at files

    def look_back(self, name: str) -> float:
        """Seconds by which a look is behind the truth though the cache is new; 0 if it is not."""
        if not self._look[1] or self.world.now >= self.end or name not in self.world.server.history:
            return 0.0
        versions = self.world.server.history[name]
        if self.world.now - versions[-1][0] > self.longest or not self.happens("again", name):
            return 0.0
        return self.draw("again", 0.0, self.longest)

    def believe(self, name: str) -> float:
        """Seconds for which a look is not repeated at the server."""
        if not self._look[0] or self.world.now >= self.end:
            return 0.0
        if self._rng["stale"].random() >= 5 * self.rate["stale"]:
            return 0.0
        self.counts["stale"] += 1
        stay = self._rng["stale"].uniform(0.0, self.longest)
        self.log.append((self.world.now, "stale", f"{self.world.process.name}: {name or 'listing'} for {stay:.2f} s"))
        return min(stay, self.end - self.world.now)

    def leave_out(self, names: List[str], server: Any, now: float) -> None:
        if "gaps" not in self.kinds:
            return
        for name in [n for n in names if now - server.history[n][-1][0] < 1.0]:
            if self.happens("gaps", name):
                names.remove(name)

    def stale_handle(self, name: str) -> None:
        if self.happens("handle", name, min(self.rate["handle"], 0.03)):  # Files gives up after five in a row
            raise OSError(errno.ESTALE, "Stale file handle")

    def read_fails(self) -> bool:
        return self.happens("handle", "in the middle of reading")

    # ---------------------------------------------------------------------------------------------- changing files

    def lose(self, name: str) -> bool:
        if name.endswith("heartbeat"):
            return self.happens("beats", name, min(0.3, 5 * self.rate["beats"]))
        return self.happens("lost", name)

    def tear(self, name: str, inode: Any) -> Any:
        if not self.happens("torn", name):
            return inode
        half = type(inode)(inode.data[: int(len(inode.data) * self.draw("torn", 0.0, 1.0))])
        if self.draw("torn", 0.0, 1.0) < 0.5:
            self.world.scheduler.call(self.draw("torn", 0.0, 3.0), lambda: setattr(half, "data", inode.data))
        return half

    def delay(self, name: str) -> float:
        for kind in ("delay", "reorder"):
            if self.happens(kind, name, 5 * self.rate[kind]):
                return self.draw(kind, 0.0, self.longest)
        return 0.0

    def duplicate(self, name: str) -> float:
        return self.draw("replay", 0.01, 4.0) if self.happens("replay", name) else 0.0

    def remove_again(self, name: str) -> float:
        return self.draw("remove twice", 0.01, 3.0) if self.happens("remove twice", name) else 0.0

    def repeated(self, name: str) -> bool:
        return self.happens("repeat", name, min(self.rate["repeat"], 0.03))  # Files gives up after five in a row
