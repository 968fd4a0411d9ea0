"""Files that a user, a worker or an earlier run hands over: plain ones only, and none larger than it may be.

``open`` waits for ever at a named pipe, and ``read`` fills the memory from a device, or from a sparse file that costs
its writer nothing. So whatever is read here is looked at first: its kind and its size decide. Python 3.8.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from contextvars import ContextVar
from typing import Any, Iterator, Optional, Union

Name = Union[str, "os.PathLike[str]"]

MIB = 2**20
TEXT_BYTES = MIB  # a configuration, a candidate, a small JSON file
TABLE_BYTES = 1024 * MIB  # scores, trials, replies of models: what a long run writes line by line
TORCH_BYTES = 512 * MIB  # a world, a policy, a checkpoint of a search
KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"), (stat.S_ISSOCK, "a socket"),
)  # fmt: skip


class UnfitFileError(OSError):
    """Raised for a path that is not a plain file, is larger than allowed, or holds no text. Retrying does not help.
    ``strerror`` says what was found, ``filename`` where, as in any OSError."""


def read_plain(path: Name, limit: int) -> bytes:
    """Bytes of a plain file of at most ``limit`` bytes. Raises UnfitFileError, OSError."""
    fd = _open(path)
    try:
        size = _size(fd, path, limit)
        data = os.read(fd, size)
        if len(data) < size:  # a system call reads 2 GiB at most, and a network file system perhaps less
            with os.fdopen(fd, "rb", closefd=False) as file:
                data += file.read(size - len(data))
        return data
    except OSError as e:
        if e.filename is None:
            raise OSError(e.errno, e.strerror, os.fspath(path)) from e
        raise
    finally:
        os.close(fd)


def read_text(path: Name, limit: int = TEXT_BYTES) -> str:
    """Text of a plain UTF-8 file of at most ``limit`` bytes. Raises UnfitFileError, OSError."""
    try:
        return read_plain(path, limit).decode("utf-8")
    except UnicodeDecodeError as e:
        raise _unfit(errno.EILSEQ, f"found bytes at {e.start} that are not UTF-8, expected text", path) from None


def read_end(path: Name, most: int) -> bytes:
    """Last ``most`` bytes of a plain file of any size. Raises UnfitFileError, OSError."""
    fd = _open(path)
    try:
        size = _size(fd, path, sys.maxsize)
        return os.pread(fd, most, max(0, size - most))
    finally:
        os.close(fd)


def read_piece(path: Name, at: int, most: int) -> bytes:
    """At most ``most`` bytes of a plain file of any size, from ``at`` on; b"" at its end. Raises UnfitFileError,
    OSError."""
    fd = _open(path)
    try:
        _size(fd, path, sys.maxsize)
        return os.pread(fd, most, at)
    finally:
        os.close(fd)


_guarded: ContextVar[Optional[str]] = ContextVar("guarded", default=None)


@contextlib.contextmanager
def no_links_out_of(folder: Name) -> Iterator[None]:
    """Meanwhile a file of ``folder`` that is a link to somewhere else is not read (UnfitFileError): what a stranger's
    folder names would become part of what is made of it, and be sent on."""
    token = _guarded.set(os.path.abspath(folder))
    try:
        yield
    finally:
        _guarded.reset(token)


def leads_out(path: Name, folder: Name) -> bool:
    """True if ``path``, below ``folder``, is or passes through a link to somewhere else."""
    at, root = os.path.abspath(path), os.path.abspath(folder)
    if os.path.commonpath([at, root]) != root:
        return False
    real = os.path.realpath(root)
    return os.path.commonpath([os.path.realpath(at), real]) != real


def check_plain(path: Name, limit: int = TEXT_BYTES) -> None:
    """Checks a file that Python's import or a library will read. Raises UnfitFileError, OSError."""
    fd = _open(path)
    try:
        _size(fd, path, limit)
    finally:
        os.close(fd)


def _open(path: Name) -> int:
    guarded = _guarded.get()
    try:
        if guarded is not None and leads_out(path, guarded):
            raise _unfit(errno.EPERM, "found a link that leads out of the folder, expected a file in it", path)
        # O_NONBLOCK: a named pipe without a writer would stop the reader here
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:  # a null byte
        raise _unfit(errno.EINVAL, "found a null byte in the name, expected a file's name", path) from None


def _size(fd: int, path: Name, limit: int) -> int:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        kind = next((text for fits, text in KINDS if fits(status.st_mode)), "something else")
        raise _unfit(errno.EINVAL, f"found {kind}, expected a plain file", path)
    if status.st_size > limit:
        raise _unfit(errno.EFBIG, f"found {status.st_size:,} bytes, expected at most {limit:,}", path)
    return status.st_size


def _unfit(code: int, text: str, path: Any) -> UnfitFileError:
    return UnfitFileError(code, text, os.fspath(path))
