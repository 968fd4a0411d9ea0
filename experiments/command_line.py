"""How commands begin and end: arguments in today's words; an error is one line on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from envolve.core import commands, interrupt, memory
from envolve.outer.config.load import ConfigError

T = TypeVar("T")
MANY = 10**6  # worlds, agents, workers, repetitions: more than any machine has time for
MOST = {"--seed": 2**62, "--threads": 1024, "--steps": 10**12, "--real-steps": 10**12}


def parse(script: str, cls: type[T], argv: Sequence[str] | None, text: str) -> T:
    """The arguments of a command, whose fields ``cls`` declares. script: its name in the table of commands; text: what
    it does, with examples and exit codes. Wrong arguments end the process."""
    import tyro

    if commands.declared is not None:
        commands.declared(script, cls, text)
    words = commands.modern(script, argv)
    return tyro.cli(cls, args=words, prog=commands.called(script), description=text)


def empty_folder(run_dir: Path) -> Path:
    """The folder of a new run, made here. Raises ConfigError if something is in it, OSError."""
    if run_dir.is_dir() and any(run_dir.iterdir()):
        raise ConfigError([f"--run-dir: found files in {run_dir}, expected a new folder; --resume goes on with a run"])
    run_dir.mkdir(parents=True, exist_ok=True)
    return run_dir


def check_count(option: str, value: int | None, least: int) -> None:
    """None: not given. Raises ConfigError."""
    most = MOST.get(option, MANY)
    if value is not None and not least <= value <= most:
        raise ConfigError([f"{option}: found {value}, expected at least {least} and at most {most}"])


def check_folder(option: str, value: Path | None) -> None:
    """Raises ConfigError for what is no folder."""
    if value is not None and not value.is_dir():
        raise ConfigError([f"{option}: found {str(value)!r}, expected a folder"])


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
        return interrupt.stopped(commands.called(prog))
    except Exception as e:
        short = memory.shortage(e, sizes)
        if not short and not isinstance(e, expected):
            raise
        code, text = 1, short or in_words(e)
    if text:
        print(f"{commands.called(prog)}: {text}", file=sys.stderr)
    return code
