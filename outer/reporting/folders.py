"""New folders for runs. Python 3.8."""

from __future__ import annotations

from pathlib import Path


def new_folder(folder: Path) -> Path:
    """Makes ``folder``, or the first free one of folder_2, folder_3, ... Raises OSError."""
    for i in range(1, 10_000):
        found = folder if i == 1 else folder.with_name(f"{folder.name}_{i}")
        try:
            found.mkdir(parents=True)
            return found
        except FileExistsError:
            if not found.is_dir():  # a file stands where the folder should be
                raise
    raise FileExistsError(f"{folder}: found 10000 runs there, expected fewer")
