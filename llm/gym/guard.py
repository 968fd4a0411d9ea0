"""Starts the process of a training so that nothing of it outlives its master.

``python -m envolve.llm.gym.guard FOLDER MASTER``: MASTER is the process id of the parent. This process stays,
small, as the guardian: it forks the one that trains (``jailed.py``), takes over what is orphaned of it (double forks,
sessions of their own), and ends it all when the training or the master does. Before the master is known to live, and
its death to be heard of, nothing is imported that takes time and nothing is written.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from envolve.core.child import ends_with_parent

_PR_SET_CHILD_SUBREAPER = 36


def guard(master: int) -> None:
    """Forks; returns in the child. The parent becomes the guardian and ends as the child does."""
    signal.signal(signal.SIGTERM, _over)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    ends_with_parent(signal.SIGTERM, master)()
    guardian = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # no child between its fork and what it needs
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        ends_with_parent(signal.SIGKILL, guardian)()
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    ended, status = 0, 0
    while ended != child:
        ended, status = os.waitpid(-1, 0)
    _kill_children()
    _end_as(status)


def _over(signum: int, frame: Any) -> None:
    """Ends the training: the master has died, or asks for it."""
    _kill_children()
    os._exit(128 + signum)


def _kill_children() -> None:
    """Process ids of all descendants; orphaned ones become children of this process."""
    while True:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Process ids of children; none without /proc (then the parent-death signal alone ends them)."""
    own, found = str(os.getpid()).encode(), []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[1] == own:
                    found.append(int(name))
    return found


def _end_as(status: int) -> NoReturn:
    """Ends this process by the same signal, or with the same exit code."""
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signum = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


if __name__ == "__main__":
    guard(int(sys.argv[2]))
    import logging

    from envolve.llm.gym.jailed import main

    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    main(Path(sys.argv[1]).resolve())
