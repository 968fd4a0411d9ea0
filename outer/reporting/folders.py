"""New folders for runs. Python 3.8."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Iterator


def numbered(folder: Path) -> Iterator[Path]:
    """Names for a new folder, the first of which that is free is taken: folder, folder_2, folder_3, ..."""
    yield folder
    for i in itertools.count(2):
        yield folder.with_name(f"{folder.name}_{i}")


def new_folder(folder: Path) -> Path:
    """Makes ``folder``, or the first free one of folder_2, folder_3, ... Raises OSError."""
    for found in itertools.islice(numbered(folder), 9_999):
        try:
            found.mkdir(parents=True)
            return found
        except FileExistsError:
            if not found.is_dir():  # a file stands where the folder should be
                raise
    raise FileExistsError(f"{folder}: found 10000 runs there, expected fewer")
