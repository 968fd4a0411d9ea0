"""A folder on a file server, as several machines see it: what ``os`` is to ``outer/exchange/machine.py`` in the
simulation.

The server has one truth and a history. Every machine has a client with caches of names and of the listing (attribute
and directory caches), and faults: see :data:`tests.outer.simulation.faults.KINDS` for what each does and when a real
one happens. Two rules hold for every client: it sees its own changes at once, and its own change of a name makes it ask
the server at the next look (the server's answer to the change tells it that the folder has moved on).
"""

from __future__ import annotations

import errno
import os as real_os
import stat
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

FOLDER = "/sync"


class Inode:
    __slots__ = ("data",)

    def __init__(self, data: bytes = b"") -> None:
        self.data = data


class Server:
    """The truth. ``history[name]``: (when, what), the latest last; None where the name was removed."""

    def __init__(self) -> None:
        self.names: Dict[str, Inode] = {}
        self.history: Dict[str, List[Tuple[float, Optional[Inode]]]] = {}

    def put(self, now: float, name: str, inode: Optional[Inode]) -> None:
        if inode is None:
            self.names.pop(name, None)
        else:
            self.names[name] = inode
        versions = self.history.setdefault(name, [])
        versions.append((now, inode))
        del versions[:-6]

    def before(self, name: str, when: float) -> Optional[Inode]:
        """What the name stood for at an earlier time, as far as is remembered."""
        past = None
        for at, inode in self.history.get(name, ()):
            if at > when:
                break
            past = inode
        return past


class Client:
    """What one machine sees and does. All operations may raise OSError, and wait."""

    def __init__(self, world: Any) -> None:
        self.world, self.server = world, world.server
        self.seen: Dict[str, Tuple[Optional[Inode], float]] = {}  # what a name stands for, until when it is believed
        self.listing: Tuple[List[str], float] = ([], -1.0)
        self.own: Dict[str, Tuple[Optional[Inode], int]] = {}  # changes that have not reached the server
        self.arrives = 0.0  # when the latest of them does ...
        self.latest: Dict[str, float] = {}  # ... and per name
        self.changes = 0

    # ---------------------------------------------------------------------------------------------- looking

    def look(self, name: str) -> Optional[Inode]:
        if name in self.own:
            return self.own[name][0]
        now, faults = self.world.now, self.world.faults
        inode, until = self.seen.get(name, (None, -1.0))
        if now < until:
            return inode
        inode = self.server.names.get(name)
        back = faults.look_back(name)
        if back:
            inode = self.server.before(name, now - back)
        stay = faults.believe(name)
        if stay:
            self.seen[name] = (inode, now + stay)
        return inode

    def list(self) -> List[str]:
        now, faults = self.world.now, self.world.faults
        names, until = self.listing
        if now >= until:
            names = list(self.server.names)
            faults.leave_out(names, self.server, now)
            stay = faults.believe("")
            if stay:
                self.listing = (names, now + stay)
        if self.own:
            gone = {n for n, (inode, _) in self.own.items() if inode is None}
            names = [n for n in names if n not in gone] + [n for n in self.own if n not in gone and n not in names]
        return list(names)

    # ---------------------------------------------------------------------------------------------- changing

    def change(self, name: str, inode: Optional[Inode], delay: float = 0.0) -> None:
        """To the server at once, or later: until then only this machine sees it."""
        self.seen.pop(name, None)
        names, until = self.listing
        if self.world.now < until:
            if inode is None and name in names:
                names.remove(name)
            elif inode is not None and name not in names:
                names.append(name)
        if delay <= 0 and name not in self.own:
            self.server.put(self.world.now, name, inode)
            return
        self.changes += 1
        number = self.changes
        self.own[name] = (inode, number)

        def arrive() -> None:
            self.server.put(self.world.now, name, inode)
            if name in self.own and self.own[name][1] == number:
                del self.own[name]

        at = self.world.now + delay
        if not self.world.faults.on("reorder"):
            at = self.arrives = max(at, self.arrives)
        else:  # still in order for one name
            at = self.latest[name] = max(at, self.latest.get(name, 0.0))
        self.world.scheduler.call(at - self.world.now, arrive)


class VirtualOS:
    """The part of ``os`` that outer/exchange/machine.py and core/files.py use, for the running process."""

    O_RDONLY, O_NONBLOCK = real_os.O_RDONLY, real_os.O_NONBLOCK
    O_NOCTTY, O_CLOEXEC = real_os.O_NOCTTY, real_os.O_CLOEXEC
    O_WRONLY, O_CREAT, O_TRUNC = real_os.O_WRONLY, real_os.O_CREAT, real_os.O_TRUNC
    path = real_os.path
    strerror, fspath = staticmethod(real_os.strerror), staticmethod(real_os.fspath)

    def __init__(self, world: Any) -> None:
        self.world = world
        self._open: Dict[int, Tuple[str, Inode]] = {}
        self._fd = 2

    @staticmethod
    def _name(path: str) -> str:
        assert path.startswith(FOLDER + "/"), path
        return path[len(FOLDER) + 1 :]

    @property
    def client(self) -> Client:
        client: Client = self.world.process.client
        return client

    def getpid(self) -> int:
        return int(self.world.process.pid)

    def urandom(self, n: int) -> bytes:
        return bytes(self.world.ids.randrange(256) for _ in range(n))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.world.step("makedirs", path)

    def listdir(self, path: str) -> List[str]:
        self.world.step("list", "")
        self.world.faults.stale_handle("list")
        return self.client.list()

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        name = self._name(path)
        inode = self._created(name) if flags & self.O_WRONLY else self._found(name, path)
        self._fd += 1
        self._open[self._fd] = name, inode
        return self._fd

    def _found(self, name: str, path: str) -> Inode:
        self.world.look_step(name)
        inode = self.client.look(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self.world.step("read", name)
        self.world.faults.stale_handle(name)
        return inode

    def _created(self, name: str) -> Inode:
        self.world.step("create", name)
        if self.world.full and self.world.ids.random() < 0.5:
            raise OSError(errno.ENOSPC, "No space left on device")
        inode = Inode()
        self.client.change(name, inode)
        return inode

    def fstat(self, fd: int) -> Any:
        return SimpleNamespace(st_mode=stat.S_IFREG | 0o644, st_size=len(self._open[fd][1].data))

    def read(self, fd: int, size: int) -> bytes:
        if self.world.faults.read_fails():
            raise OSError(errno.ESTALE, "Stale file handle")
        return self._open[fd][1].data[:size]

    def write(self, fd: int, data: memoryview) -> int:
        name, inode = self._open[fd]
        inode.data = bytes(data[: len(data) // 2])
        self.world.step("write", name)
        if self.world.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        inode.data = bytes(data)
        return len(data)

    def close(self, fd: int) -> None:
        del self._open[fd]

    def replace(self, source: str, target: str) -> None:
        old, new = self._name(source), self._name(target)
        world, client, faults = self.world, self.client, self.world.faults
        world.step("rename to", new)
        inode = client.own[old][0] if old in client.own else self.world.server.names.get(old)  # the server's business
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)
        client.change(old, None)
        if not faults.lose(new):
            inode = faults.tear(new, inode)
            client.change(new, inode, faults.delay(new))
            again = faults.duplicate(new)
            if again:
                world.scheduler.call(again, lambda: self.world.server.put(self.world.now, new, inode))
        world.step("renamed to", new)
        if faults.repeated(new):  # the answer got lost, the client asked again, and the file had gone
            world.scheduler.wait(faults.draw("repeat", 0.0, 2.0))
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)

    def remove(self, path: str) -> None:
        name = self._name(path)
        world, client, faults = self.world, self.client, self.world.faults
        world.step("remove", name)
        if client.look(name) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        client.change(name, None, faults.delay(name))
        later = faults.remove_again(name)
        if later:
            world.scheduler.call(later, lambda: self.world.server.put(self.world.now, name, None))
        world.step("removed", name)
        if faults.repeated(name):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
