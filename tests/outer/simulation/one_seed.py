"""One seed from beginning to end: the world is put under the code under test, and taken away again."""

from __future__ import annotations

import contextlib
import logging
import re
import uuid
from types import SimpleNamespace
from typing import Any, FrozenSet, Iterator, List

import envolve.core.files
import envolve.outer.exchange.dispatch
import envolve.outer.exchange.heartbeat
import envolve.outer.exchange.machine
from tests.outer.simulation.schedule import VirtualLanes, VirtualLock
from tests.outer.simulation.world import World


class _Log(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        self.world.say(f"log: {record.getMessage()}")


@contextlib.contextmanager
def installed(world: World) -> Iterator[None]:
    """Puts the virtual system calls, locks, time and random numbers where the code under test looks for them."""
    log = logging.getLogger("envolve")
    ids = SimpleNamespace(uuid4=lambda: uuid.UUID(int=world.ids.getrandbits(128)))
    changes: List[Any] = [
        (envolve.core.files, "os", world.os),
        (envolve.outer.exchange.machine, "os", world.os),
        (envolve.outer.exchange.machine, "time", SimpleNamespace(sleep=world.scheduler.wait)),
        (envolve.outer.exchange.heartbeat, "threading", SimpleNamespace(Lock=lambda: VirtualLock(world.scheduler))),
        (envolve.outer.exchange.heartbeat, "uuid", ids),
        (envolve.outer.exchange.dispatch, "uuid", ids),
        (envolve.outer.exchange.dispatch, "Lanes", lambda count: VirtualLanes(world.scheduler, world.lanes)),
    ]
    kept = [(module, name, getattr(module, name, None)) for module, name, _ in changes]
    level, handler, propagate, disabled = log.level, _Log(world), log.propagate, log.disabled
    for module, name, value in changes:
        setattr(module, name, value)
    log.propagate, log.disabled = False, world.trace is None
    if world.trace is not None:
        log.setLevel(logging.INFO)
        log.addHandler(handler)
    try:
        yield
    finally:
        for module, name, value in kept:
            if value is None:
                delattr(module, name)
            else:
                setattr(module, name, value)
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate, log.disabled = propagate, disabled


def simulate(seed: int, **options: Any) -> World:
    """Runs the world of this seed; its ``failure`` says how it ended."""
    world = World(seed, **options)
    with installed(world):
        world.go()
    return world


def shrink(seed: int, drop: FrozenSet[str] = frozenset(), **options: Any) -> FrozenSet[str]:
    """The kinds of faults that this seed can do without and still fail in the same way."""

    def way(without: FrozenSet[str]) -> str:
        return re.sub(r"[\d.]+", "", simulate(seed, drop=without, **options).failure or "")[:40]

    dropped, same = drop, way(drop)
    for kind in sorted(simulate(seed, drop=drop, **options).faults.kinds):
        if way(dropped | {kind}) == same:
            dropped |= {kind}
    return dropped
