"""Files that nobody should open: of each kind one, made where a test wants it."""

from __future__ import annotations

import os
from pathlib import Path

ODD = ("pipe", "device", "folder", "sparse", "empty", "binary")


def make_odd(kind: str, path: Path) -> Path:
    """A named pipe, an endless device, a folder, a file of 20 GB without content, one without any, one of no text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 20 * 10**9)
    else:
        path.write_bytes(b"" if kind == "empty" else b"\xff\xfe\x00\x9f" * 100)
    return path
