"""Ends a process silently, as SIGPIPE does, when the reader of its output has gone (``| head``). Python would print a
traceback.

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
    """Text stream that ends the process silently when its reader has gone. This is not done in the raw file: a signal
    between the write and its bookkeeping would cause the text to be written twice."""

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
    """Installs the check for stdout and stderr if they are pipes. Their writes then raise SystemExit."""
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
            buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, text)


def flushed(code: Any) -> Any:
    """Flushes stdout -> the exit code: ``code``, or that of a vanished reader."""
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
    """Discards what is left in the buffers."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
