"""Processes on machines of the simulation, and what outer/exchange/machine.py's Host is to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from tests.outer.simulation.filesystem import Client
from tests.outer.simulation.schedule import Process

if TYPE_CHECKING:
    from tests.outer.simulation.world import World


MASTER = -1  # the master's slot


class SimProcess(Process):
    def __init__(self, world: World, name: str, slot: int, node: str) -> None:
        super().__init__(name, world.scheduler)
        self.world, self.slot, self.node = world, slot, node
        taken = {pid for (machine, pid), p in world.kernel.items() if machine == f"{node}/boot/pid" and not p.dead}
        self.pid = world.ids.choice([pid for pid in range(100, 112 + len(taken)) if pid not in taken])
        self.started = world.count()
        world.kernel[f"{node}/boot/pid", self.pid] = self
        self.client = world.clients.setdefault(node, Client(world))
        self.owner: Any = None  # the Worker or Dispatcher, once it has claimed its slot
        self.extra = False  # nobody starts it again
        self.since = world.now

    def believes(self) -> bool:
        return self.owner is not None and not (self.dead or self.stopped) and self.owner._heartbeat.usurper is None


class VirtualHost:
    """What outer/exchange/machine.py's Host is, for one process. Clocks are monotonic, but begin and run as they
    like."""

    def __init__(self, process: SimProcess) -> None:
        self._world, self._process = process.world, process
        world = process.world
        self.name, self.machine = process.node[:4], f"{process.node}/boot/pid"
        self.pid, self.started = process.pid, process.started
        self._offset = world.ids.uniform(0.0, 1e6)
        self._speed = 1.0
        if world.faults.on("clocks"):
            self._speed += world.faults.draw("clocks", -0.03, 0.03)
            world.faults.counts["clocks"] += 1

    def monotonic(self) -> float:
        return self._offset + self._world.now * self._speed

    def sleep(self, seconds: float) -> None:
        # Longer than asked, as a busy machine does; fewer looks also make a seed cheaper.
        late = 1.0 + self._world.coarse * self._world.ids.random() if seconds < 0.2 else 1.0
        self._world.scheduler.wait(seconds * late / self._speed)

    def every(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        scheduler = self._world.scheduler
        state = {"ends": False, "busy": False}

        def loop() -> None:
            while True:
                scheduler.wait(seconds / self._speed)
                if state["ends"]:
                    return
                state["busy"] = True
                function()
                state["busy"] = False

        task = scheduler.spawn(self._process, loop)

        def cancel() -> None:
            state["ends"] = True
            while state["busy"] and scheduler.current is not task and not task.done:
                scheduler.wait(0.01)

        return cancel

    def alive(self, pid: int, started: int) -> bool:
        other = self._world.kernel.get((self.machine, pid))
        return other is not None and not other.dead and other.started == started
