"""Append-only files of JSON lines: every line is synced to disk, and an incomplete last line does not count."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envolve.core.files import TABLE_BYTES, read_plain


class JSONLinesError(ValueError):
    """Raised for a complete line that is not a JSON object: names file, line and fault."""


def read(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers (from 1) and contents; nothing if there is no file. Raises JSONLinesError, OSError."""
    for number, text in enumerate(read_plain(path, TABLE_BYTES).split(b"\n")[:-1] if path.exists() else (), 1):
        try:
            content = json.loads(text.decode("utf-8"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as e:
            raise JSONLinesError(f"{path}, line {number}: not JSON ({e})") from None
        if not isinstance(content, dict):
            raise JSONLinesError(f"{path}, line {number}: found {type(content).__name__}, expected an object")
        yield number, content


def append(path: Path, *contents: dict[str, Any]) -> None:
    """Appends lines, which are on disk on return; an incomplete line before them is removed. Raises OSError with the
    file's name."""
    data = b"".join(map(line, contents))
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            end = os.lseek(file, 0, os.SEEK_END)
            while end and os.pread(file, 1, end - 1) != b"\n":  # torn lines are rare
                end -= 1
            os.ftruncate(file, end)
            os.lseek(file, end, os.SEEK_SET)
            with open(file, "wb", closefd=False) as stream:
                stream.write(data)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as e:  # of a full disk there is no name in it
        e.filename = str(path)
        raise


def line(content: dict[str, Any]) -> bytes:
    """Line of a file."""
    return json.dumps(content, allow_nan=False).encode("ascii") + b"\n"


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
