"""Handling of Ctrl-C and SIGTERM in every command: it ends within ``LIMIT`` seconds, prints in one line how to
continue, and its exit code is 128 + the signal's number (130, 143).

A command calls ``listen`` before it imports anything slow, and ``run(main)`` as its last statement. In between:

- while modules are imported nothing is at stake, and the process ends at once;
- in main() the first signal raises ``Stopped``, a KeyboardInterrupt, in the main thread, which ends its children and
  writes what it must on its way out;
- Python handles a signal between two bytecodes only, and whatever is on the way out may hang, so a thread of its own
  waits for ``LIMIT`` seconds; then, or at a second Ctrl-C, it kills all that this process has started and ends it.
  Files are replaced whole everywhere (``write_atomic``), so that no moment is a wrong one;
- the reader of the output may go (``| head``): then the command ends silently, as if by SIGPIPE (141).

Standard library only: importing this must cost nothing. Python 3.8.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from typing import Any, Callable, Iterator, List, NoReturn, Optional

from envolve.core.commands import answer
from envolve.core.descendants import kill_descendants
from envolve.core.memory import shortage
from envolve.core.reader_gone import end_with_the_reader, flushed

LIMIT = 4.0  # seconds from the signal to the end, at most; users are promised 5
GENTLE = 1.5  # seconds that a phase under way has to end by itself, where a command asks for that
TWICE = 0.1  # seconds within which a second Ctrl-C is the first one, sent to a group and to each in it
FAREWELL = 0.3  # seconds for what is done at a forced end
QUIET = "ENVOLVE_STOPS_QUIETLY"  # set for a command that another one started, which says itself how to go on
AGAIN = "the same command starts it again"
GO_ON = "what is finished is kept; the same command goes on"
COMPLETE = "its work was complete"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STARTING, _RUNNING, _ENDING = range(3)
_AGAIN = 0  # in the pipe of signals: raise once more


class Stopped(KeyboardInterrupt):
    """Raised by SIGINT or SIGTERM. No evaluation may count it as a failure of its own."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class _Listener:
    """The listener of this process."""

    def __init__(self, prog: str, limit: float) -> None:
        self.prog, self.limit, self.advice = prog, limit, AGAIN
        self.phase, self.first, self.heard_at, self.queued = _STARTING, 0, 0.0, 0.0
        self.raised = self.gentle = self.pressing = False
        self.farewells: List[Callable[[], object]] = []
        self._own = 0  # SIGINTs that this process sends itself
        self._said = threading.Lock()  # never released
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def start(self) -> None:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)  # written at once, whatever the main thread does
        for signum in _SIGNALS:
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
        if self.phase != _RUNNING:
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
            for number in os.read(self._read, 64) if ready else b"":
                self._arrived(number)
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

    def _arrived(self, number: int) -> None:
        if number == _AGAIN:
            time.sleep(0.02)  # until the finalizer is left
            self.press()
        elif number == signal.SIGINT and self._own:
            self._own -= 1
        elif number in _SIGNALS:
            second = bool(self.first) and time.monotonic() - self.heard_at > TWICE
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
        """Runs the registered function, once."""
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
            if os.isatty(1) and self.phase == _RUNNING:
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


_listener: Optional[_Listener] = None


def listen(prog: str, limit: float = LIMIT) -> None:
    """From now on signals are heard, and a reader that has gone ends the process. prog: what the line begins with;
    limit: seconds from a signal to the end, for a process that another one waits for. Where help is all that is asked
    for, or a flag is wrong, the process ends here, before anything slow is imported."""
    global _listener
    if _listener is not None:
        _listener.prog, _listener.limit = prog, limit
    else:
        _listener = _Listener(prog, limit)
        _listener.start()
        atexit.register(_deaf)  # the first to be registered is the last to be called
        os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_forget)
        end_with_the_reader()
    answer(prog, sys.argv[1:])


def listens() -> bool:
    """Whether this process is a command that has called ``listen``."""
    return _listener is not None


def run(main: Callable[[], int]) -> NoReturn:
    """Runs main() and ends the process with its exit code, or with the code of a signal."""
    listener = _listener
    assert listener is not None, "listen() comes before run()"
    code: Any = 1
    why = ""
    listener.phase = _RUNNING
    try:
        try:
            code = main()
        finally:
            listener.phase = _ENDING
    except SystemExit as e:
        code = e.code
    except KeyboardInterrupt:
        code = listener.code
    except Exception as e:
        if not listener.first and isinstance(e, OSError):  # a full disk under stdout; files are for main() to name
            print(f"{listener.prog}: {e.filename or 'output'}: {e.strerror or e}", file=sys.stderr)
        elif not listener.first and shortage(e):
            print(f"{listener.prog}: {shortage(e)}", file=sys.stderr)
        elif not listener.first:
            raise
        why = f" ({type(e).__name__}: {e})".replace("\n", " ")  # on the way out
    code = flushed(code)
    if not listener.first or code == 0:
        listener.advice = COMPLETE
    if not listener.first:
        sys.exit(code)
    kill_descendants()
    listener.say(listener.advice, why)
    sys.exit(listener.code)


def advise(text: str) -> None:
    """Sets the advice printed after "stopped; "."""
    if _listener is not None:
        _listener.advice = text


def stopped(prog: str, advice: Optional[str] = None) -> int:
    """Prints that the command was stopped and how to continue -> the exit code. For a main() that catches
    KeyboardInterrupt itself instead of using ``run``."""
    if _listener is not None:
        _listener.say(advice or _listener.advice)
        return _listener.code
    print(f"{prog}: stopped; {advice or AGAIN}", file=sys.stderr)
    return 128 + signal.SIGINT


def at_forced_end(call: Callable[[], object]) -> None:
    """Registers a function that is called in another thread before the process is killed for not ending by itself."""
    if _listener is not None:
        _listener.farewells.append(call)


@contextlib.contextmanager
def gently() -> Iterator[Callable[[], bool]]:
    """Within this context the first signal only makes the returned function say True. The signal raises ``GENTLE``
    seconds later, and at the end of the context."""
    listener = _listener
    if listener is None:
        yield lambda: False
        return
    listener.gentle = True
    try:
        yield lambda: bool(listener.first)
    finally:
        listener.gentle = False
    if listener.first and not listener.raised:
        listener.raised = True
        raise Stopped(listener.first)


@contextlib.contextmanager
def deaf_children() -> Iterator[None]:
    """Within this context, child processes are started without SIGINT: a terminal sends it to all processes, but only
    this one ends them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Within this context a library may put its own handlers in the place of ours; afterwards ours are back."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where nobody can set any
        return
    before = [(signum, signal.getsignal(signum)) for signum in _SIGNALS]
    try:
        yield
    finally:
        for signum, handler in before:
            if handler is not None:
                signal.signal(signum, handler)


# ---------------------------------------------------------------------------------------------------- of the process


def _queued() -> float:
    """Seconds that the main thread was ready to run but had no core; 0 where the kernel does not count them."""
    try:
        with open(f"/proc/self/task/{threading.main_thread().native_id}/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _deaf() -> None:
    """Ignores signals while the interpreter shuts down: all work is done and the exit code is known."""
    if _listener is not None:
        for signum in _SIGNALS:
            signal.signal(signum, signal.SIG_IGN)


_held = threading.local()


def _hold() -> None:
    """Blocks signals before a fork: a signal that reaches the child before ``_forget`` would be handled as the
    parent's."""
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _let_go() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _forget() -> None:
    """Drops the parent's signal handling in a forked child."""
    global _listener
    if _listener is not None:
        sys.unraisablehook, threading.excepthook = _listener.hooks
        _listener = None
        signal.set_wakeup_fd(-1)
        for signum in _SIGNALS:
            signal.signal(signum, signal.SIG_DFL)  # silently, also between fork and exec
    _let_go()
