"""System calls of the exchange: files in one folder, time, and live processes.

Small on purpose: a simulation replaces :class:`Files` and :class:`Host` by its own. Python 3.8.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from typing import Callable, List, Optional, TypeVar

from envolve.core.files import UnfitFileError, read_plain

OWN_SYNC = "sync"  # the folder of the exchange of a run with local workers, in the run's own
T = TypeVar("T")
_ROOM = "Free some space or make the folder writable, or choose another with --sync-dir."
_FILE = "Something in this path is a file; choose a folder with --sync-dir."
HELPS = {  # what to do, by the error of the system; {path}: where it happened
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT), _ROOM),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), _FILE),
    errno.EISDIR: "It is a folder where a file belongs; remove it: {path}",
}


class ExchangeError(RuntimeError):
    """Raised if the sync folder cannot be used. The text names the file, what failed, and what to do."""


class NotReady(Exception):
    """Raised if files do not (yet) belong together: retry soon."""


class Rejected(Exception):
    """Raised if a file violates the protocol: a retry does not help."""


class Files:
    """The sync folder. File system errors become :class:`ExchangeError`; a missing file is None, not an error."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)
        self.temporary = f"{os.getpid()}.{os.urandom(4).hex()}.tmp"
        self._make_folder()

    def _make_folder(self) -> None:
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as e:
            raise self._error("cannot make the sync folder", self.folder, e) from e

    def _error(self, what: str, path: str, e: OSError) -> ExchangeError:
        helps = HELPS.get(e.errno or 0, "Choose another folder with --sync-dir.").format(path=path)
        return ExchangeError(f"{what} {path}: {os.strerror(e.errno) if e.errno else e}. {helps}")

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def names(self) -> List[str]:
        """Names of all files in the folder; empty if it was deleted."""
        try:
            return _patiently(lambda: os.listdir(self.folder))
        except FileNotFoundError:
            return []
        except OSError as e:
            raise self._error("cannot list the sync folder", self.folder, e) from e

    def read(self, name: str, limit: int) -> Optional[bytes]:
        """Bytes of a file; None if it does not exist. Raises :class:`Rejected` if it is not a plain file or too
        large."""
        path = self.path(name)
        try:
            return read_plain(path, limit)
        except FileNotFoundError:
            return None
        except UnfitFileError as e:
            raise Rejected(f"{name}: {e.strerror}") from e
        except OSError as e:  # ESTALE of a network file system
            raise NotReady(f"cannot read {path}: {e}") from e

    def write(self, name: str, data: bytes) -> None:
        """Writes all or nothing, by renaming a temporary file of the same folder."""
        path, temporary = self.path(name), self.path(f".{name}.{self.temporary}")
        for last in (False, False, False, False, True):
            try:
                try:
                    _write(temporary, data)
                    _patiently(lambda: os.replace(temporary, path))
                    return
                except BaseException:
                    self._forget(temporary)
                    raise
            # The folder or the temporary file was cleaned away under us; or a network file system did rename it, lost
            # the answer, asked again and did not find it. We cannot tell, and the same file twice does no harm.
            except FileNotFoundError as e:
                if last:
                    raise self._error("cannot write", path, e) from e
                self._make_folder()
            except OSError as e:
                raise self._error("cannot write", path, e) from e

    @staticmethod
    def _forget(path: str) -> None:
        try:
            os.remove(path)
        except OSError:
            pass  # it was not made, or it has been renamed already

    def remove(self, name: str) -> None:
        """Removes a file; a missing one is fine."""
        try:
            _patiently(lambda: os.remove(self.path(name)))
        except FileNotFoundError:
            pass
        except OSError as e:
            raise self._error("cannot remove", self.path(name), e) from e

    def put_aside(self, name: str) -> None:
        """Renames a file to ``<name>.rejected``, replacing an earlier one, for inspection."""
        try:
            _patiently(lambda: os.replace(self.path(name), self.path(name + ".rejected")))
        except FileNotFoundError:
            pass
        except OSError as e:
            raise self._error("cannot put aside", self.path(name), e) from e


def _write(path: str, data: bytes) -> None:
    # Python's own file objects would ask for status, position and terminal as well
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
    finally:
        os.close(fd)


def _patiently(action: Callable[[], T]) -> T:
    """Retries after a stale handle of the folder on a network file system."""
    for seconds in (0.0, 0.1, 0.3, 1.0):
        try:
            return action()
        except OSError as e:
            if e.errno != errno.ESTALE:
                raise
        time.sleep(seconds)
    return action()


class Host:
    """Time and live processes. ``machine`` names a host, its boot and its process namespace: two processes can ask the
    kernel about each other only if all three are equal."""

    def __init__(self) -> None:
        self.name = socket.gethostname()
        self.pid = os.getpid()
        self.machine = "{}/{}/{}".format(self.name, _first_line("/proc/sys/kernel/random/boot_id")[:8], _namespace())
        self.started = self.start_time(self.pid)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def every(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        """Calls ``function`` periodically in a daemon thread; returns a function that ends it."""
        stop = threading.Event()

        def loop() -> None:
            while not stop.wait(seconds):
                function()

        thread = threading.Thread(target=loop, name="heartbeat", daemon=True)
        thread.start()

        def cancel() -> None:
            stop.set()
            if thread is not threading.current_thread():
                thread.join()

        return cancel

    @staticmethod
    def start_time(pid: int) -> int:
        """Kernel ticks at which a live process started; 0 if the system does not tell; -1 if it is dead."""
        if pid <= 0:
            return -1
        if os.path.exists("/proc/self/stat"):
            fields = _first_line(f"/proc/{pid}/stat").rpartition(")")[2].split()
            if len(fields) < 20 or fields[0] in "ZX":  # a zombie has ended, though it was not collected yet
                return -1
            return int(fields[19])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return -1
        except OSError:
            pass  # it lives and belongs to another user
        return 0

    def alive(self, pid: int, started: int) -> bool:
        """True if this very process lives; the start time distinguishes it from a later one with the same pid."""
        return self.start_time(pid) == started


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.readline().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
