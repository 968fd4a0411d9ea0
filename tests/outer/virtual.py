"""A machine for protocol tests: files in a dict, a clock that moves when somebody sleeps, processes in name only."""

from __future__ import annotations

import errno
import heapq
import itertools
from typing import Callable, Dict, List, Optional, Set, Tuple

import torch

from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.machine import ExchangeError, Rejected
from envolve.outer.exchange.messages import Chunk
from envolve.outer.exchange.worker import SecondWorkerError, Worker


class Machine:
    def __init__(self) -> None:
        self.now = 1000.0
        self.files: Dict[str, bytes] = {}
        self.fail: Optional[int] = None  # errno of every write from now on
        self.dead: Set[int] = set()
        self._events: List[Tuple[float, int, float, Callable[[], None], VirtualHost, List[bool]]] = []
        self._count = itertools.count()

    def schedule(self, host: VirtualHost, interval: float, function: Callable[[], None]) -> Callable[[], None]:
        cancelled = [False]
        heapq.heappush(self._events, (self.now + interval, next(self._count), interval, function, host, cancelled))
        return lambda: cancelled.__setitem__(0, True)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            at, _, interval, function, host, cancelled = heapq.heappop(self._events)
            self.now = max(self.now, at)
            if cancelled[0] or host.pid in self.dead:
                continue
            if not host.stopped:
                function()
            heapq.heappush(self._events, (at + interval, next(self._count), interval, function, host, cancelled))
        self.now = max(self.now, end)


class VirtualHost:
    def __init__(self, machine: Machine, pid: int, name: str = "here") -> None:
        self._machine, self.pid, self.name, self.machine, self.started = machine, pid, name, name + "/boot/pid", 7
        self.stopped = False

    def monotonic(self) -> float:
        return self._machine.now

    def sleep(self, seconds: float) -> None:
        self._machine.advance(seconds)

    def every(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        return self._machine.schedule(self, seconds, function)

    def alive(self, pid: int, started: int) -> bool:
        return pid not in self._machine.dead and started == 7


class VirtualFiles:
    folder = "/virtual"
    temporary = "x.tmp"

    def __init__(self, machine: Machine) -> None:
        self._m = machine

    def names(self) -> List[str]:
        return list(self._m.files)

    def read(self, name: str, limit: int) -> Optional[bytes]:
        data = self._m.files.get(name)
        if data is not None and len(data) > limit:
            raise Rejected("too large")
        return data

    def write(self, name: str, data: bytes) -> None:
        if self._m.fail is not None:
            raise ExchangeError(f"cannot write {name}: {errno.errorcode[self._m.fail]}")
        self._m.files[name] = data

    def remove(self, name: str) -> None:
        self._m.files.pop(name, None)

    def put_aside(self, name: str) -> None:
        if name in self._m.files:
            self._m.files[name + ".rejected"] = self._m.files.pop(name)


class Hang(BaseException):
    """Raised by a fake evaluation: the process goes on living and beating but never comes back from it."""


def fake(config, worlds, seeds, mode, threads):
    return {"score": worlds.sum(1), "train_steps": seeds * 2, "reason": [""] * len(seeds)}


class Cluster:
    """A master and any number of workers on one virtual file system."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.files = VirtualFiles(self.machine)
        self.pids = itertools.count(100)
        self.hosts: Dict[int, VirtualHost] = {}
        self.workers: Dict[int, Worker] = {}

    def master(self, bohb_id: int = 0, name: str = "here", run_id: str = "run", **options) -> Dispatcher:
        host = VirtualHost(self.machine, next(self.pids), name)
        return Dispatcher("", bohb_id, run_id, files=self.files, host=host, **options)

    def worker(self, worker_id: int, evaluate=fake, bohb_id: int = 0, name: str = "here") -> Worker:
        host = VirtualHost(self.machine, next(self.pids), name)
        worker = Worker(bohb_id, worker_id, self.files, host, lambda: evaluate)
        worker.start()
        cancel: List[Callable[[], None]] = []

        def step() -> None:
            try:
                while not worker.quit and worker.step():
                    pass
            except (Hang, SecondWorkerError):
                cancel[0]()
            if worker.quit:
                worker.close()
                cancel[0]()

        cancel.append(self.machine.schedule(host, 0.01, step))
        self.hosts[worker_id], self.workers[worker_id] = host, worker
        return worker

    def kill(self, worker_id: int) -> None:
        self.machine.dead.add(self.hosts[worker_id].pid)


def chunks_of(count: int, generation: int = 0, run_id: str = "run", p: int = 3, size: int = 5) -> List[Chunk]:
    worlds = torch.arange(count * p * size, dtype=torch.float32).reshape(count, p, size) + generation
    config = {"agents": {"gtn": {"num_threads_per_worker": 1}}}
    return [Chunk(run_id, generation, i, 0, "proxy", config, worlds[i], torch.arange(p) + 10 * i) for i in range(count)]
