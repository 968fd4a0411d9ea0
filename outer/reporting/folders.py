"""New folders for runs. Python 3.8."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Iterator


def new_folder(folder: Path) -> Path:
    """Makes ``folder``, or the first free one of folder_2, folder_3, ... Raises OSError."""
    others = (folder.with_name(f"{folder.name}_{i}") for i in range(2, 10_000))
    for found in itertools.chain([folder], others):
        try:
            found.mkdir(parents=True)
            return found
        except FileExistsError:
            if not found.is_dir():  # a file stands where the folder should be
                raise
    raise FileExistsError(f"{folder}: found 10000 runs there, expected fewer")


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """A new folder, ``new_folder(folder)``, which goes away again if nothing is in it at the end. It is made at once: a
    command that begins in the same second has another one. Raises OSError."""
    found = new_folder(folder)
    try:
        yield found
    finally:
        with contextlib.suppress(OSError):  # what was written stays
            found.rmdir()
