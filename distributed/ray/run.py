"""A distributed run on a Ray cluster: ``envolve distributed --workers-on ray[:ADDRESS]``.

The driver starts the hub on its own node, where the run's folder is, and the programs where there is room. Ray starts
whatever dies again, on another node if its own is gone. What must not be lost is at the hub; the driver's node is the
one that a run cannot lose, and the same command goes on from its folder.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envolve.core.child import FIRST_DELAY, MAX_DELAY
from envolve.core.cleaning import one_line
from envolve.distributed.files.run_folder import RunSettings
from envolve.distributed.programs.cpus import number_per_role
from envolve.distributed.programs.launch import Told
from envolve.distributed.ray.hub import LOGS, RunHub
from envolve.distributed.ray.role import ROOM, Role
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray import actors
from envolve.outer.ray.address import HERE, address_of
from envolve.outer.ray.cluster import connected
from envolve.outer.ray.evaluator import versions

log = logging.getLogger("envolve")

LOOK = 0.5  # s between two looks at the logs
MOST_FAILURES = 50  # of one program, without a death
MORE_CALLS = 12  # at once at the hub, beside one of each collector
DECIDE = ("learner", "evaluator")  # the run is complete when they are


@dataclass(frozen=True)
class Program:
    """``cpus``: that it needs, and so many threads."""

    role: str
    worker: int
    cpus: int

    @property
    def name(self) -> str:
        return f"collector_{self.worker}" if self.role == "collector" else self.role


def programs_of(collectors: int) -> list[Program]:
    """Programs that Ray places. Raises ParamsError for variables that are no numbers (``programs/cpus.py``)."""
    learner, each = number_per_role()
    return [
        Program("learner", 0, learner),
        Program("evaluator", 0, 1),
        *(Program("collector", i, each) for i in range(collectors)),
    ]


def asked(programs: list[Program], room: list[float]) -> list[float]:
    """CPUs that each program asks Ray for: its own or, where they do not all fit into the nodes, an equal part, so that
    all do. room: CPUs of each node."""
    own = [float(p.cpus) for p in programs]
    left = sorted(map(int, room), reverse=True)
    if not sum(left):
        return own  # an autoscaler makes room
    for cpus in sorted(own, reverse=True):
        at = next((i for i, free in enumerate(left) if free >= cpus), None)
        if at is None:
            part = 1 / math.ceil(len(programs) / sum(map(int, room)))
            return [part] * len(programs)
        left[at] -= int(cpus)
    return own


def train_on_ray(settings: RunSettings, folder: Path, workers_on: str) -> str:
    """Runs to the end -> "", or why a program cannot go on. Raises ExchangeError, KeyboardInterrupt."""
    programs = programs_of(settings.num_collectors)
    address = address_of(workers_on, HERE)
    with connected(address, sum(p.cpus for p in programs)):
        told = Told(folder / LOGS, list(DECIDE))
        try:
            return Run(settings, folder, programs).to_its_end(told)
        finally:
            told()


class Run:
    """Hub and programs of a run that is connected to Ray."""

    def __init__(self, settings: RunSettings, folder: Path, programs: list[Program]) -> None:
        self._programs, self._versions = {p.name: p for p in programs}, versions(ROOM)
        self.failures = dict.fromkeys(self._programs, 0)
        calls = settings.num_collectors + MORE_CALLS
        where = str(folder.resolve())
        self.hub = actors.begin(RunHub, where, cpus=0, threads=calls, node=actors.node_here())
        try:
            actors.call(self.hub, "hello")
        except Exception as e:
            actors.end(self.hub)
            raise ExchangeError(f"the hub cannot be started on Ray: {_words(e)}") from e
        room = actors.cpus_of_nodes()
        asks = asked(programs, room)
        if asks != [p.cpus for p in programs]:
            log.warning("%d CPUs on Ray for %d programs: they share them", sum(room), len(programs))
        self.actors = {p.name: actors.begin(Role, cpus=cpus) for p, cpus in zip(programs, asks)}

    def _begin(self, calls: actors.Calls, name: str) -> None:
        p = self._programs[name]
        calls.begin(name, self.actors[name], "run", p.role, p.worker, p.cpus, self._versions, self.hub)

    def to_its_end(self, watch: Callable[[], None]) -> str:
        """-> "", or why a program cannot go on. ``watch`` is called twice per second."""
        calls, left = actors.Calls(), set(DECIDE)
        later: list[tuple[float, str]] = []  # starts that wait until then
        for name in self.actors:
            self._begin(calls, name)
        try:
            while left:
                for name, wrong, error in calls.ended(LOOK):
                    if wrong:
                        return f"{name}: {wrong}"
                    if error is None:
                        left.discard(name)
                        continue
                    self.failures[name] += 1
                    text = f"{name}: {_words(error)}"
                    if isinstance(error, actors.gone()) or self.failures[name] >= MOST_FAILURES:
                        return f"{text}; it cannot be kept alive"
                    log.warning("%s; started again", text)
                    later.append((time.monotonic() + min(MAX_DELAY, FIRST_DELAY * 2 ** self.failures[name]), name))
                for at, name in later:
                    if at <= time.monotonic():
                        self._begin(calls, name)
                later = [(at, name) for at, name in later if at > time.monotonic()]
                watch()
            return ""
        finally:
            self.close()

    def close(self) -> None:
        for actor in (*self.actors.values(), self.hub):
            actors.end(actor)


def _words(e: BaseException) -> str:
    """The last line of an exception: Ray puts the remote traceback before it."""
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return one_line(lines[-1] if lines else type(e).__name__)
