"""Folder of this project's code, in a checkout or installed. Python 3.8."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Union

import envolve

CODE = Path(__file__).resolve().parents[1]  # has agents/, envs/, configs/, ...: a checkout, or site-packages/envolve
IMPORTS = Path(envolve.__file__).resolve().parents[1]  # where Python finds the package: a checkout, or site-packages


def shipped(path: Union[str, Path]) -> Path:
    """The file or folder itself or, where there is none, the one of this name that comes with the project, so that
    ``default_config_gridworld.yaml`` or ``configs/spaces/...`` means the same in every folder."""
    own = Path(path)
    return own if own.is_absolute() or own.exists() or not (CODE / own).exists() else CODE / own


def private_folder(path: Path) -> Path:
    """The folder, made for this user alone unless it is there: another user could put files into one in a folder for
    temporary files. Raises OSError if it is no folder, or not of this user alone."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise FileExistsError(17, "found it, and it is not a folder that this user alone can change", str(path))
    return path
