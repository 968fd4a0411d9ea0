"""Output whose reader has gone (``| head``) ends a process silently, as SIGPIPE does; Python's own way is a traceback.

SIGPIPE itself stays ignored: it would also end a process that writes to a child which has died. Standard library only;
Python 3.8.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import stat
import sys
from typing import Any, NoReturn

PIPE_CODE = 128 + signal.SIGPIPE


class _Pipe(io.BufferedWriter):
    """Ends the process, silently, when nobody reads any more. Not its raw file does: a signal that raises between the
    write and the note of it would have it written twice."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self._end()

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._end()

    def _end(self) -> NoReturn:
        _to_nowhere(self.fileno())
        raise SystemExit(PIPE_CODE) from None


def end_with_the_reader() -> None:
    """From now on, where stdout or stderr is a pipe. Raises SystemExit wherever it is written to."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if not stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
                continue
        except (OSError, ValueError, AttributeError):  # closed, or none
            continue
        stream.flush()
        buffer = _Pipe(io.FileIO(stream.fileno(), "wb", closefd=False))
        text = io.TextIOWrapper(
            buffer, encoding=stream.encoding, errors=stream.errors, line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )  # fmt: skip
        setattr(sys, name, text)


def flushed(code: Any) -> Any:
    """What is still in stdout's buffer is written -> the exit code: ``code``, unless that fails."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as e:
        return e.code
    except (OSError, ValueError) as e:  # a full disk
        with contextlib.suppress(OSError, ValueError):
            if not code:
                print(f"stdout: {getattr(e, 'strerror', None) or e}", file=sys.stderr)
            _to_nowhere(1)
        return code or 1
    return code


def _to_nowhere(descriptor: int) -> None:
    """What is still in buffers goes there, too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
