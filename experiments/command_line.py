"""Ends of commands: an error is one line on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

from envolve.core import interrupt, memory
from envolve.outer.config.load import ConfigError

MANY = 10**6  # worlds, agents, workers, repetitions: more than any machine has time for
MOST = {"--seed": 2**62, "--threads": 1024, "--steps": 10**12, "--real-steps": 10**12}


def check_count(option: str, value: int | None, least: int) -> None:
    """None: not given. Raises ConfigError."""
    most = MOST.get(option, MANY)
    if value is not None and not least <= value <= most:
        raise ConfigError([f"{option}: found {value}, expected at least {least} and at most {most}"])


def in_words(e: BaseException) -> str:
    """Text of a system error: the file and the reason."""
    return f"{e.filename}: {e.strerror}" if isinstance(e, OSError) and e.filename else str(e)


def exit_code(
    prog: str,
    work: Callable[[], int],
    errors: tuple[type[Exception], ...],
    stopped: str = interrupt.AGAIN,
    sizes: str = memory.SIZES,
) -> int:
    """work() -> the exit code. Said in a line: a ConfigError (2), ``errors``, those of the system and too little memory
    for ``sizes`` (1), and that it was stopped and what then helps (130, 143); work() may know better by
    ``interrupt.advise``."""
    expected: tuple[type[Exception], ...] = (OSError, *errors)
    interrupt.advise(stopped)
    try:
        return work()
    except ConfigError as e:
        code, text = 2, str(e)
    except KeyboardInterrupt:
        return interrupt.stopped(prog)
    except Exception as e:
        short = memory.shortage(e, sizes)
        if not short and not isinstance(e, expected):
            raise
        code, text = 1, short or in_words(e)
    if text:
        print(f"{prog}: {text}", file=sys.stderr)
    return code
