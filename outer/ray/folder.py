"""A folder as bytes, for nodes that do not see it: what a trial goes on from, and what it leaves."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from envolve.core.files import read_plain
from envolve.envs.worlds.file import write_atomic
from envolve.outer.exchange.machine import ExchangeError, Rejected
from envolve.outer.names import CHECKPOINT
from envolve.outer.ray.codec import join, part

MAX_BYTES = 256 * 2**20  # of all files together
MAX_NAME = 512  # characters of a path


def folder_bytes(folder: Path) -> bytes:
    """All plain files below ``folder``; b"" if there is none. Raises ExchangeError, OSError."""
    found = [(Path(at) / name) for at, _, names in os.walk(folder) for name in names]
    files = sorted(path for path in found if path.is_file() and not path.is_symlink())
    size = sum(path.stat().st_size for path in files)
    if size > MAX_BYTES:
        words = f"{size >> 20} MB, expected at most {MAX_BYTES >> 20} to send; choose a --run-dir that all nodes see"
        raise ExchangeError(f"{folder}: found {words}")
    if not files:
        return b""
    names = [path.relative_to(folder).as_posix() for path in files]
    contents = [np.array(bytearray(read_plain(path, MAX_BYTES)), dtype=np.uint8) for path in files]
    return join({"names": names}, [torch.from_numpy(content) for content in contents])


def write_folder(data: bytes, folder: Path) -> None:
    """Inverse: writes the files below ``folder``, checkpoints last, for whoever finds one may rely on the others.
    Nothing that is read is trusted. Raises Rejected, OSError."""
    if not data:
        return
    header, contents = part(data)
    names = header.get("names")
    if not isinstance(names, list) or len(names) != len(contents):
        raise Rejected("a folder without the names of its files")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise Rejected("a folder with a name that is none")
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or path.as_posix() != name or "\\" in name:
            raise Rejected(f"a folder with the name {name}, which leads elsewhere")
    if any(c.dtype != torch.uint8 or c.ndim != 1 for c in contents):
        raise Rejected("a folder whose files are not bytes")
    for name, content in sorted(zip(names, contents, strict=True), key=lambda f: (f[0].endswith(CHECKPOINT), f[0])):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(str(path), content.numpy().tobytes())
