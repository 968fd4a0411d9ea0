"""Hears Ctrl-C and SIGTERM for the process: what the main thread does at a signal, and a thread of its own that ends
the process where the main one does not. ``interrupt.py`` is what commands call, and says what users are promised.

Standard library only: importing this must cost nothing. Python 3.8.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from typing import Any, Callable, List, NoReturn, Optional

from envolve.core.descendants import kill_descendants

GENTLE = 1.5  # seconds that a phase under way has to end by itself, where a command asks for that
TWICE = 0.1  # seconds within which a second Ctrl-C is the first one, sent to a group and to each in it
FAREWELL = 0.3  # seconds for what is done at a forced end
QUIET = "ENVOLVE_STOPS_QUIETLY"  # set for a command that another one started, which says itself how to go on
AGAIN = "the same command starts it again"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
STARTING, RUNNING, ENDING = range(3)
_AGAIN = 0  # in the pipe of signals: raise once more


class Stopped(KeyboardInterrupt):
    """Raised by SIGINT or SIGTERM. No evaluation may count it as a failure of its own."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Listener:
    """The listener of this process."""

    def __init__(self, prog: str, limit: float) -> None:
        self.prog, self.limit, self.advice = prog, limit, AGAIN
        self.phase, self.first, self.heard_at, self.queued = STARTING, 0, 0.0, 0.0
        self.raised = self.gentle = self.pressing = False
        self.farewells: List[Callable[[], object]] = []
        self._own = 0  # SIGINTs that this process sends itself
        self._seen = False  # whether the watch has read of a signal
        self._said = threading.Lock()  # never released
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def start(self) -> None:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)  # written at once, whatever the main thread does
        for signum in SIGNALS:
            signal.signal(signum, self._handle)
        self.hooks = sys.unraisablehook, threading.excepthook
        sys.unraisablehook, threading.excepthook = self._unraisable, self._thread_failed
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        threading.Thread(target=self._watch, daemon=True, name="interrupt").start()  # signals are not for this thread:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a main thread may block them and wait for them

    # ----------------------------------------------------------------------------------------------- in the main thread

    def _note(self, signum: int) -> None:
        if not self.first:
            self.first, self.heard_at, self.queued = signum, time.monotonic(), _queued()

    def _handle(self, signum: int, frame: Any) -> None:
        self._note(signum)
        if self.raised:
            return
        if self.phase != RUNNING:
            self.end()
        if self.gentle and not self.pressing:
            return
        self.raised = True
        if "logging" in sys.modules:
            sys.modules["logging"].disable(30)  # warnings: one line is enough; errors are said
        raise Stopped(self.first)

    def _unraisable(self, args: Any) -> None:
        """Raises a signal again that a finalizer or a C callback has swallowed."""
        if isinstance(args.exc_value, Stopped):
            self.raised, self.pressing = False, True
            os.write(self._write, bytes([_AGAIN]))
        elif not self.first:
            self.hooks[0](args)

    def _thread_failed(self, args: Any) -> None:
        if not self.first:  # afterwards threads lose what they work with
            self.hooks[1](args)

    # --------------------------------------------------------------------------------------------------- in the watch's

    def _watch(self) -> None:
        while True:
            ready, _, _ = select.select([self._read], [], [], self._patience())
            seen = self._seen
            for number in os.read(self._read, 64) if ready else b"":
                self._arrived(number, seen)
            if not self.first:
                continue
            waited = time.monotonic() - self.heard_at
            if waited >= self._deadline():
                self.end()
            if self.gentle and not self.pressing and waited >= GENTLE:
                self.press()

    def _patience(self) -> Optional[float]:
        """Seconds until the next action without a signal."""
        if not self.first:
            return None
        until = GENTLE if self.gentle and not self.pressing else self._deadline()
        return max(0.0, self.heard_at + until - time.monotonic())

    def _deadline(self) -> float:
        """Seconds from the signal to the end, extended up to twofold where other programs keep the main thread from
        running, so that it can write its results."""
        return self.limit + min(_queued() - self.queued, self.limit)

    def _arrived(self, number: int, seen: bool) -> None:
        """seen: whether there was a signal before those that are read now. One that the main thread has handled long
        before this thread had a core is not a second one."""
        if number == _AGAIN:
            time.sleep(0.02)  # until the finalizer is left
            self.press()
        elif number == signal.SIGINT and self._own:
            self._own -= 1
        elif number in SIGNALS:
            second = seen and time.monotonic() - self.heard_at > TWICE
            self._seen = True
            self._note(number)
            if second and number == signal.SIGINT:
                self.end()

    def press(self) -> None:
        """Raises Stopped in the main thread, even if it is waiting."""
        self.pressing = True
        self._own += 1
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGINT)

    # -------------------------------------------------------------------------------------------------------- the end

    @property
    def code(self) -> int:
        return 128 + (self.first or signal.SIGINT)

    def say(self, advice: str, why: str = "") -> None:
        """Writes that the program was stopped, and what to do next, once; nothing where ``QUIET`` is set."""
        if not self._said.acquire(blocking=False) or os.environ.get(QUIET):
            return
        start = "\n" if os.isatty(2) else ""  # the terminal shows ^C
        with contextlib.suppress(OSError):  # not sys.stderr, whose lock another thread may hold
            os.write(2, f"{start}{self.prog}: stopped{why}; {advice}\n".encode(errors="replace"))

    def end(self) -> NoReturn:
        """Ends the process at once, with all its descendants."""
        _at_most(FAREWELL, self._farewell)
        kill_descendants()
        if not _at_most(FAREWELL, lambda: self.say(self.advice)):  # a terminal may be held (Ctrl-S)
            self.say(self.advice)
        os._exit(self.code)

    def _farewell(self) -> None:
        for call in self.farewells:
            with contextlib.suppress(Exception):
                call()
        with contextlib.suppress(Exception):
            if os.isatty(1) and self.phase == RUNNING:
                os.write(1, b"\x1b[?25h")  # the cursor, which a live table hides
            sys.stdout.flush()


def _at_most(seconds: float, call: Callable[[], object]) -> bool:
    """Calls it, and waits no longer. False: it was not called, for from Python 3.12 on no thread begins once the main
    thread has ended and only others keep the process."""
    thread = threading.Thread(target=call, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return False
    thread.join(seconds)
    return True


def _queued() -> float:
    """Seconds that the main thread was ready to run but had no core; 0 where the kernel does not count them."""
    try:
        with open(f"/proc/self/task/{threading.main_thread().native_id}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
