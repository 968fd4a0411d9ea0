"""Ends calls of an environment that take too long, in the main thread of a process; another can't be interrupted.

A hang inside compiled code cannot be ended, but its process can: in a process that allows it (``end_process``), the
system ends it after CPU_SECONDS of CPU time without a look. A worker allows it, since its chunk goes to another.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

STEP_SECONDS = 60.0  # of one call of the environment; it is ended after this time to twice this time
CPU_SECONDS = 150.0  # more than two looks apart
end_process = False
_armed = False
_calls = [0, 0]  # begun so far; at the last look


class TooSlow(BaseException):
    """A call of the environment took too long. No Exception, so that nothing in the environment catches it."""


class watched:
    """In here, TooSlow is raised if no call begins (``again()``) between two looks that are STEP_SECONDS apart. A timer
    of its own for every call would cost more than some environments' steps."""

    def __enter__(self) -> None:
        global _armed
        self.mine = not _armed and threading.current_thread() is threading.main_thread()
        if self.mine:
            self.before = signal.signal(signal.SIGALRM, _look)
            _armed = True
            again()
            signal.setitimer(signal.ITIMER_REAL, STEP_SECONDS, STEP_SECONDS)
            _extend()

    def __exit__(self, *_: Any) -> None:
        global _armed
        if self.mine:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _armed = False
            signal.signal(signal.SIGALRM, self.before)


def again() -> None:
    """A call begins."""
    _calls[0] += 1


def _look(*_: Any) -> None:
    if _calls[0] == _calls[1]:
        raise TooSlow(f"a call took longer than {STEP_SECONDS:g} s: does it hang?")
    _calls[1] = _calls[0]
    _extend()


def _extend() -> None:
    """Sets back the limit of CPU time. SIGPROF has the system's own handler, which ends the process."""
    if end_process:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
