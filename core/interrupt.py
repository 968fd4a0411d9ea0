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
import signal
import sys
import threading
from typing import Any, Callable, Iterator, NoReturn, Optional

from envolve.core.commands import answer
from envolve.core.descendants import kill_descendants
from envolve.core.listener import AGAIN, ENDING, RUNNING, SIGNALS, Listener, Stopped
from envolve.core.memory import shortage
from envolve.core.reader_gone import end_with_the_reader, flushed

LIMIT = 4.0  # seconds from the signal to the end, at most; users are promised 5
GO_ON = "what is finished is kept; the same command goes on"
COMPLETE = "its work was complete"

_listener: Optional[Listener] = None


def listen(prog: str, limit: float = LIMIT) -> None:
    """From now on signals are heard, and a reader that has gone ends the process. prog: what the line begins with;
    limit: seconds from a signal to the end, for a process that another one waits for. Where help is all that is asked
    for, or a flag is wrong, the process ends here, before anything slow is imported."""
    global _listener
    if _listener is not None:
        _listener.prog, _listener.limit = prog, limit
    else:
        _listener = Listener(prog, limit)
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
    listener.phase = RUNNING
    try:
        try:
            code = main()
        finally:
            listener.phase = ENDING
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
        yield  # only the main thread may set any
        return
    before = [(signum, signal.getsignal(signum)) for signum in SIGNALS]
    try:
        yield
    finally:
        for signum, handler in before:
            if handler is not None:
                signal.signal(signum, handler)


# ---------------------------------------------------------------------------------------------------- of the process


def _deaf() -> None:
    """Ignores signals while the interpreter shuts down: all work is done and the exit code is known."""
    if _listener is not None:
        for signum in SIGNALS:
            signal.signal(signum, signal.SIG_IGN)


_held = threading.local()


def _hold() -> None:
    """Blocks signals before a fork: a signal that reaches the child before ``_forget`` would be handled as the
    parent's."""
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _let_go() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _forget() -> None:
    """Drops the parent's signal handling in a forked child."""
    global _listener
    if _listener is not None:
        sys.unraisablehook, threading.excepthook = _listener.hooks
        _listener = None
        signal.set_wakeup_fd(-1)
        for signum in SIGNALS:
            signal.signal(signum, signal.SIG_DFL)  # silently, also between fork and exec
    _let_go()
