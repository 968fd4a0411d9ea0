"""Ends calls of an environment that take too long, in the main thread of a process; another can't be interrupted.

A hang inside compiled code goes on until that code returns.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

STEP_SECONDS = 60.0  # of one call of the environment; it is ended after this time to twice this time
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

    def __exit__(self, *_: Any) -> None:
        global _armed
        if self.mine:
            signal.setitimer(signal.ITIMER_REAL, 0)
            _armed = False
            signal.signal(signal.SIGALRM, self.before)


def again() -> None:
    """A call begins."""
    _calls[0] += 1


def _look(*_: Any) -> None:
    if _calls[0] == _calls[1]:
        raise TooSlow(f"a call took longer than {STEP_SECONDS:g} s: does it hang?")
    _calls[1] = _calls[0]
