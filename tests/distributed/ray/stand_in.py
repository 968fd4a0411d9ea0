"""Ray's actors as objects of this process, whose calls are made in threads."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

from envolve.outer.ray import actors


class Killed(BaseException):
    """Ends a program as SIGKILL does: nothing of it is written any more."""


class Stand:
    """Stands in for the actor of a class. ``die``: its object does nothing any more, and another is made; calls that
    were under way are made again, as Ray does."""

    def __init__(self, cls: type, args: Any) -> None:
        self.cls, self.args, self.cpus, self.ended = cls, args, 0.0, False
        self.node: str | None = None
        self.object: Any = cls(*args)  # None: it is being made again

    def die(self) -> None:
        """Makes the log of a ``RunHub`` useless, as its death does, and begins the hub again."""
        hub = self.object.hub
        with hub.changed:
            hub.log.append = hub.log.begin_file = hub.log.sync = dead
            self.object = None  # before the next one tells the keeper of itself
            self.object = self.cls(*self.args)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            while not self.ended:
                found = self.object
                if found is None:
                    time.sleep(0.001)
                    continue
                try:
                    answer = getattr(found, name)(*args)
                except Exception:
                    if found is self.object and not self.ended:
                        raise
                    continue
                if found is self.object:
                    return answer
            raise Killed

        return call


def dead(*_: Any) -> None:
    raise OSError("it is dead")


class Threads:
    """As ``actors.Calls``. A call whose actor is killed is made again, as Ray does, unless it was ended."""

    begun: list[threading.Thread] = []

    def __init__(self) -> None:
        self.found: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def begin(self, name: Any, actor: Stand, method: str, *args: Any, again: bool = True) -> None:
        def run() -> None:
            while True:
                try:
                    self.found.put((name, getattr(actor, method)(*args), None))
                    return
                except Killed:
                    if actor.ended:
                        return
                except Exception as e:
                    self.found.put((name, None, e))
                    return

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.begun.append(thread)

    def ended(self, timeout: float) -> list[Any]:
        try:
            return [self.found.get(timeout=min(timeout, 0.05))]
        except queue.Empty:
            return []


class Gone(Exception):
    pass


def install(monkeypatch: Any, cpus: float = 8, other: str | None = None) -> dict[str, list[Stand]]:
    """other: a second node. -> the actors, by the name of their class."""
    made: dict[str, list[Stand]] = {}
    names: dict[str | None, Stand] = {}

    def begin(
        cls: type, *args: Any, cpus: float, threads: int = 1, node: Any = None, apart: Any = None, name: Any = None
    ) -> Stand:
        stand = Stand(cls, args)
        stand.cpus, stand.node, names[name] = cpus, node if apart is None else other, stand
        made.setdefault(cls.__name__, []).append(stand)
        return stand

    def call(actor: Stand, method: str, *args: Any) -> Any:
        return getattr(actor, method)(*args)

    def tell(actor: Stand, method: str, *args: Any) -> None:
        with contextlib.suppress(*[Killed] * (method == "alive")):  # said by a thread that no program waits for
            call(actor, method, *args)

    def end(actor: Stand) -> None:
        actor.ended = True
        if hasattr(actor.object, "hub"):  # the last: no program may run on into the next test
            with actor.object.hub.changed:
                actor.object.hub.changed.notify_all()
            while Threads.begun:
                Threads.begun.pop().join(20)

    def within(seconds: float, actor: Stand, method: str, *args: Any) -> None:
        call(actor, method, *args)

    own = {"begin": begin, "call": call, "tell": tell, "within": within, "end": end, "Calls": Threads,
           "gone": lambda: Gone, "node_here": lambda: "node", "named": lambda name: names[name],
           "others": lambda _: [] if other is None else [other], "cpus_of_nodes": lambda: [cpus]}  # fmt: skip
    for name, value in own.items():
        monkeypatch.setattr(actors, name, value)
    return made
