"""Locks that the processes of one machine, or of one shared file system, hold on files and folders. Python 3.8."""

from __future__ import annotations

import errno
import fcntl

from envolve.core.cleaning import warn_once

WITHOUT = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)  # what a file system answers


def lock(file: int, name: object) -> None:
    """Locks an open file or folder until it is closed, for all who hold the descriptor. A file system without locks
    locks nothing, which the log says once. name: of the file, for that. Raises BlockingIOError if another process has
    locked it, OSError."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as e:
        if e.errno not in WITHOUT:
            raise OSError(e.errno, e.strerror, str(name)) from None
        warn_once(f"{name}: its file system has no locks, so nothing keeps a second process away")
