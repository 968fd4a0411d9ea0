"""A distributed run on a Ray cluster: ``envolve distributed --workers-on ray[:ADDRESS]``.

The driver starts the hub on another node than its own, where there is one, and the programs where there is room. Ray
starts whatever dies again, on another node if its own is gone. What must not be lost is on the hub's node and in the
run's folder on the driver's (``keeper.py``). The driver itself is not started again: the same command goes on from
either folder.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envolve.core.child import FIRST_DELAY, MAX_DELAY, backoff
from envolve.core.cleaning import one_line
from envolve.distributed.files.run_folder import RunSettings
from envolve.distributed.programs.launch import Told
from envolve.distributed.ray.hub import RunHub
from envolve.distributed.ray.keeper import LOGS, Keeper, name_of
from envolve.distributed.ray.programs import Program, asked, programs_of
from envolve.distributed.ray.role import ROOM, RayRole
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray import actors
from envolve.outer.ray.address import HERE, address_of
from envolve.outer.ray.cluster import connected
from envolve.outer.ray.evaluator import versions
from envolve.outer.ray.events import last_line

log = logging.getLogger("envolve")

LOOK = 0.5  # s between two looks at the logs
MOST_FAILURES, HEALTHY = 50, 600.0  # of one program in a row, without a death; s after which it is not in a row
MORE_CALLS = 12  # at once at the hub, beside one of each collector
SECONDS = 2.0  # between two questions which programs live
LOST_SECONDS, PATIENCE = 60.0, 600.0  # s until one that is silent needs no CPUs, after a lost node and otherwise
LEAVE_SECONDS = 1.0  # for the hub to remove its copy
RUN, HEARD = "run", "heard"
DECIDE = ("learner", "evaluator")  # the run is complete when they are


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


@dataclass
class Placed:
    """An actor of a program. ``seen``: when it was last heard of, or started; ``reserves``: CPUs of its own."""

    actor: actors.Handle
    reserves: bool
    seen: float
    began: float  # its latest start
    failures: int = 0  # in a row


class Run:
    """Hub and programs of a run that is connected to Ray."""

    def __init__(self, settings: RunSettings, folder: Path, programs: list[Program]) -> None:
        self._programs, self._versions = {p.name: p for p in programs}, versions(ROOM)
        self._calls = actors.Calls()
        self.hub, self.keeper = self._begin_hub(settings.num_collectors + MORE_CALLS, folder.resolve())
        self._nodes = actors.cpus_of_nodes()
        asks = asked(programs, self._nodes)
        if asks != [p.cpus for p in programs]:
            log.warning("%d CPUs on Ray for %d programs: they share them", sum(self._nodes), len(programs))
        self.placed: dict[str, Placed] = {}
        for p, cpus in zip(programs, asks):
            self._place(p.name, cpus)
        self._ask(HEARD)

    def _begin_hub(self, threads: int, folder: Path) -> tuple[actors.Handle, actors.Handle]:
        """-> the hub, and what takes charts and logs. Raises ExchangeError, RunError, OSError."""
        here, begun = actors.node_here(), []
        name = name_of(folder) if actors.others(here) else ""
        try:
            if name:
                begun.append(actors.begin(Keeper, str(folder), cpus=0, threads=threads, node=here, name=name))
                actors.call(begun[0], "hello")
                begun.append(actors.begin(RunHub, "", name, cpus=0, threads=threads, apart=here))
                log.info("the hub keeps a second copy of the run: %s", actors.call(begun[1], "where"))
            else:
                begun.append(actors.begin(RunHub, str(folder), cpus=0, threads=threads, node=here))
            actors.call(begun[-1], "hello")
        except Exception as e:
            for actor in begun:
                actors.end(actor)
            raise ExchangeError(f"the hub cannot be started on Ray: {one_line(last_line(e))}") from e
        return begun[-1], begun[0]

    def _place(self, name: str, cpus: float) -> None:
        """Starts a program on an actor of its own."""
        now = time.monotonic()
        self.placed[name] = Placed(actors.begin(RayRole, cpus=cpus), cpus > 0, now, now)
        self._begin(name)

    def _begin(self, name: str) -> None:
        p, actor = self._programs[name], self.placed[name].actor
        self.placed[name].began = time.monotonic()
        what = p.role, p.worker, p.cpus, self._versions, self.hub, self.keeper
        self._calls.begin((RUN, name, actor), actor, "run", *what)

    def _ask(self, what: str) -> None:
        self._calls.begin((what, "", self.keeper), self.keeper, what, again=False)

    def _hear(self, heard: dict[str, float], now: float) -> None:
        for name, seconds in heard.items():
            if name in self.placed:
                self.placed[name].seen = max(self.placed[name].seen, now - seconds)

    def to_its_end(self, watch: Callable[[], None]) -> str:
        """-> "", or why a program cannot go on. ``watch`` is called twice per second."""
        left = set(DECIDE)
        later: list[tuple[float, Callable[[str], None], str]] = []  # what waits until then
        try:
            while left:
                for (call, name, actor), wrong, error in self._calls.ended(LOOK):
                    now = time.monotonic()
                    if call == HEARD:
                        self._hear({} if error else wrong, now)
                        later.append((now + SECONDS, self._ask, HEARD))
                        continue
                    placed = self.placed[name]
                    if actor is not placed.actor:
                        continue
                    placed.seen = math.inf  # it has ended, and is not silent
                    if error is not None:
                        placed.failures = placed.failures + 1 if now - placed.began < HEALTHY else 1
                        text = f"{name}: {one_line(last_line(error))}"
                        if isinstance(error, actors.gone()) or placed.failures >= MOST_FAILURES:
                            return f"{text}; it cannot be kept alive"
                        log.warning("%s; started again", text)
                        later.append((now + backoff(placed.failures, FIRST_DELAY, MAX_DELAY), self._begin, name))
                    elif wrong:
                        return f"{name}: {wrong}"
                    else:
                        left.discard(name)
                now = time.monotonic()
                due, later = [x for x in later if x[0] <= now], [x for x in later if x[0] > now]
                for _, begin, name in due:
                    if name in self.placed:
                        self.placed[name].seen = now
                    begin(name)
                self._make_room(now)
                watch()
            return ""
        finally:
            self.close()

    def _make_room(self, now: float) -> None:
        """Starts programs for which no node has room any more without CPUs of their own."""
        silent = [n for n, placed in self.placed.items() if placed.reserves and now - placed.seen > LOST_SECONDS]
        if not silent:
            return
        fewer = sum(actors.cpus_of_nodes()) < sum(self._nodes)
        for name in silent:
            if fewer or now - self.placed[name].seen > PATIENCE:
                log.warning("%s: no node on Ray has room for it; it is started without CPUs of its own", name)
                actors.end(self.placed[name].actor)
                self._place(name, 0)

    def close(self) -> None:
        for placed in self.placed.values():
            actors.end(placed.actor)
        actors.within(LEAVE_SECONDS, self.hub, "leave")
        for actor in (self.hub, self.keeper):
            actors.end(actor)
