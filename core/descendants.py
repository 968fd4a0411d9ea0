"""Descendants of this process: what it has started, directly or indirectly; and what a session has used. Standard
library only; Python 3.8."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Dict

ROUNDS = 500  # of looking for new ones, at most; two or three are usual
PAUSE = 0.001  # s until those that were told to stop are looked at again


def kill_descendants() -> None:
    """Sends SIGKILL to all descendants of this process and to the sessions that they lead.

    Each is stopped first, until a look around finds no new one: a stopped process starts no other, and while it lives
    its children are known as its own. Killed at once, it would leave the child that it started a moment earlier to
    process 1, where it is not found. On a busy machine a process stops some time after it was told to, and may start
    another until then: so the last look comes after all have stopped.
    """
    found: Dict[int, int] = {}  # process id -> session
    for _ in range(ROUNDS):
        still = all(map(_has_stopped, found))
        new = _descendants(found)
        for pid in new:
            _send(pid, signal.SIGSTOP)
        found.update(new)
        if still and not new:
            break
        time.sleep(PAUSE)
    for pid in found:  # parents first, so that no parent reports the death of its child
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _has_stopped(pid: int) -> bool:
    """Whether a process runs no more, for now or for ever."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t", b"Z", b"X")
    except (OSError, IndexError):
        return True


def _descendants(known: Dict[int, int]) -> Dict[int, int]:
    """Process id -> session of the running descendants that are not in known, parents first. Without /proc: none."""
    parents, sessions = {}, dict(known)
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if b"multiprocessing.resource_tracker" in file.read():
                        continue  # it clears up after us, and then ends
                if state not in (b"Z", b"X"):
                    parents[int(name)], sessions[int(name)] = int(parent), int(session)
    own, mine = os.getpid(), os.getsid(0)
    found = list(known)
    while True:
        theirs = {sessions[pid] for pid in found} - {mine}
        more = {p for p, parent in parents.items() if parent == own or parent in found or sessions[p] in theirs}
        more -= {own, *found}
        if not more:
            return {pid: sessions[pid] for pid in found if pid not in known}
        found += sorted(more)


def session_cpu_time(session: int) -> float:
    """CPU seconds of the running processes of a session and of those that they have waited for. Without /proc: 0."""
    ticks = 0
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                if int(fields[3]) == session:
                    ticks += sum(map(int, fields[11:15]))  # utime, stime, and of children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")
