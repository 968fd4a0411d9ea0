"""How commands end: an error is one line on stderr and an exit code, SIGTERM is Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from outer.config import ConfigError


def in_words(e: BaseException) -> str:
    """Of an error of the system the file and what it said."""
    return f"{e.filename}: {e.strerror}" if isinstance(e, OSError) and e.filename else str(e)


@contextlib.contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """A batch system ends a job with it, and may send it twice."""

    def stop(signum: int, frame: Any) -> None:
        signal.signal(signum, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def exit_code(prog: str, work: Callable[[], int], errors: tuple[type[Exception], ...], stopped: str = "") -> int:
    """work() -> the exit code. Said in a line: a ConfigError (2), ``errors`` and those of the system (1), and, if there
    is something to say, that it was stopped (130)."""
    expected: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        return work()
    except ConfigError as e:
        code, text = 2, str(e)
    except KeyboardInterrupt:
        code, text = 130, stopped
    except expected as e:
        code, text = 1, in_words(e)
    if text:
        print(f"{prog}: {text}", file=sys.stderr)
    return code
