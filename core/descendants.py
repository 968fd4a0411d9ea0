"""Descendants of this process: what it has started, directly or indirectly. Standard library only; Python 3.8."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import List


def kill_descendants() -> None:
    """Sends SIGKILL to all descendants of this process and to the sessions that they lead."""
    for _ in range(10):  # processes that are just being started
        found = _descendants()
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _descendants() -> List[int]:
    """Process ids of the running descendants, parents first, so that no parent reports the death of its child. Without
    /proc: none."""
    parents, sessions = {}, {}
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
    found: List[int] = []
    while True:
        theirs = {sessions[pid] for pid in found} - {mine}
        more = {p for p, parent in parents.items() if parent == own or parent in found or sessions[p] in theirs}
        more -= {own, *found}
        if not more:
            return found
        found += sorted(more)
