"""Ends calls that hang, judged by the CPU time and sleep of their thread instead of the wall clock.

On a busy machine every call may take any time, so its length says nothing about the function. While a call runs, a tick
comes every TICK seconds and asks the kernel what this thread has had in the call: CPU time, which grows with what the
function does alone, and sleep. A thread that waits for a core does not sleep, nor does one whose process was stopped: a
tick is seen by a thread that runs, so every tick implies progress.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import threading
import time
from types import FrameType
from typing import Any, Callable, Iterator, Optional, Sequence

HANG_SECONDS = 10.0  # of CPU time that one call may take
SLEEP_SECONDS = 30.0  # through which a thread may sleep, tick after tick
IMPORTS = 6.0  # times as long where a module is being imported: half of a module would harm later imports
TICK = 0.05
AWAKE = 0.001  # CPU time within a tick; seeing the tick takes some 0.00005


class Hang(BaseException):
    """Raised inside the called function; not an Exception, so that it is not swallowed by accident."""


class Alarm:
    """Calls functions and raises ``Hang`` in those that hang."""

    def __init__(self) -> None:
        self.works = threading.current_thread() is threading.main_thread()  # which signals come to
        self.asleep = 0  # ticks in a row, up to now, through which it slept
        self._began = self._cpu = 0.0  # CPU time of the thread at the beginning of the call, at the last tick
        self._slept = (0, 0)

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Context in which ``call`` ends calls that hang."""
        if not self.works:
            yield
            return
        before = signal.signal(signal.SIGALRM, self._tick)
        try:
            yield
        finally:
            signal.signal(signal.SIGALRM, before)

    def call(self, function: Callable[..., Any], given: Sequence[Any], asleep: int = 0) -> Any:
        """Result of the function. asleep: ticks that earlier calls of it have slept; see ``asleep``."""
        self.asleep = asleep
        if not self.works:
            return function(*given)
        self._began = self._cpu = time.thread_time()
        self._slept = _sleeps()
        signal.setitimer(signal.ITIMER_REAL, TICK, TICK)
        try:
            return function(*given)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _tick(self, signum: int, frame: Optional[FrameType]) -> None:
        cpu, slept = time.thread_time(), _sleeps()
        gave_way, read_a_page = slept[0] > self._slept[0], slept[1] > self._slept[1]
        asleep = cpu - self._cpu < AWAKE and gave_way and not read_a_page
        self.asleep = self.asleep + 1 if asleep else 0
        self._cpu, self._slept = cpu, slept
        patience = IMPORTS if _importing(frame, Alarm.call.__code__) else 1.0
        if cpu - self._began > patience * HANG_SECONDS:
            raise Hang(f"after {patience * HANG_SECONDS:g} s of CPU time")
        if self.asleep * TICK > patience * SLEEP_SECONDS:
            raise Hang(f"after {patience * SLEEP_SECONDS:g} s of sleep")


def _sleeps() -> Any:
    """Number of voluntary context switches of this thread, and of major page faults. Where the system does not tell
    (macOS), a thread without CPU time counts as asleep."""
    if not hasattr(resource, "RUSAGE_THREAD"):
        return (time.monotonic(), 0)
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return (used.ru_nvcsw, used.ru_majflt)


def _importing(frame: Optional[FrameType], bottom: Any) -> bool:
    """True if one of the frames down to the code ``bottom`` is Python's import."""
    while frame is not None and frame.f_code is not bottom:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
