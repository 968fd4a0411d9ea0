"""What people, schedulers and other runs do to a run at any time, whatever its processes are doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envolve.outer.exchange.messages import ChunkResult, chunk_content, result_content
from envolve.outer.exchange.pairs import write_pair
from tests.outer.simulation.filesystem import Inode
from tests.outer.simulation.processes import MASTER
from tests.outer.simulation.small_run import SmallRun, right_answer

if TYPE_CHECKING:
    from tests.outer.simulation.world import World

OLD = 99  # the incarnation of masters whose files lie about


class Turmoil:
    def __init__(self, world: World) -> None:
        self.world = world

    def begin(self) -> None:
        faults = self.world.faults
        if "old" in faults.kinds:
            for _ in range(4):
                self._old()
        for kind, act in (
            ("rival", self._rival),
            ("twin", self._twin),
            ("full", self._full),
            ("old", self._old),
            ("kill worker", self._kill),
            ("kill master", self._kill),
        ):
            if kind in faults.kinds:
                for _ in range({"rival": 2, "twin": 3, "full": 2, "old": 6}.get(kind, 2)):
                    self.world.scheduler.call(faults.draw(kind, 0.0, self.world.end), act)

    def _rival(self) -> None:
        self.world.faults.note("rival", "a second master")
        other = SmallRun(f"rival{self.world.count()}", 3.0, **self.world.kinds_of_run)
        self.world.start(MASTER, True, other if self.world.faults.draw("rival", 0, 1) < 0.6 else None)

    def _twin(self) -> None:
        self.world.faults.note("twin", "a second worker")
        self.world.start(self.world.ids.randrange(self.world.workers), True)

    def _full(self) -> None:
        self.world.faults.note("full", "disk full")
        self.world.full = True
        self.world.scheduler.call(self.world.faults.draw("full", 0.1, 8.0), lambda: setattr(self.world, "full", False))

    def _kill(self) -> None:
        kinds = {p: "kill master" if p.slot == MASTER else "kill worker" for p in self.world.living}
        there = [p for p in self.world.living if kinds[p] in self.world.faults.kinds]
        if there:
            victim = self.world.ids.choice(there)
            self.world.faults.note(kinds[victim], f"{victim.name}, at any time")
            self.world.kill(victim)

    def _old(self) -> None:
        """A pair of another run, or of this one with the right names and a wrong answer."""
        pick = self.world.ids.choice
        chunk = SmallRun(pick(["run", "older"]), 5.0, 3, 3, 1, 1, pick([0, 1, 2])).questions(0, OLD)[pick([0, 1, 2])]
        slot, kind = self.world.ids.randrange(self.world.workers), pick(["input", "result"])
        self.world.faults.note("old", f"{kind} of {chunk.run_id} for worker {slot}")
        if kind == "input":
            content = chunk_content(chunk, f"{self.world.count()}")
        else:
            values = {k: v for k, v in right_answer(chunk).items() if k != "reason"}
            identity = (chunk.run_id, chunk.generation, chunk.chunk_id, 0)
            content = result_content(ChunkResult(*identity, f"{self.world.count():064d}", values, [""]))
        write_pair(_Bare(self.world), f"0_{slot}_{kind}", content)  # type: ignore[arg-type]


class _Bare:
    """Files of nobody."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def write(self, name: str, data: bytes) -> None:
        self.world.server.put(self.world.now, name, Inode(data))
