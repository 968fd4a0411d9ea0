"""The world of one seed: machines, a master that runs a small outer loop, workers, whoever restarts them, and oracles.

The code under test is the real one: ``Dispatcher``, ``Roster``, ``Worker``, ``Heartbeat``, the pairs of files and
``Files``. Replaced are the clock, the threads, the system calls below ``Files`` and the evaluation.
"""

from __future__ import annotations

import math
import random
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

import torch

from envolve.outer.exchange.backlog import Patience
from envolve.outer.exchange.dispatch import Dispatcher, SecondMasterError
from envolve.outer.exchange.machine import ExchangeError, Files
from envolve.outer.exchange.messages import Chunk, ChunkResult
from envolve.outer.exchange.worker import SecondWorkerError, Worker
from tests.outer.simulation.faults import ALL, Faults
from tests.outer.simulation.filesystem import FOLDER, Client, Server, VirtualOS
from tests.outer.simulation.processes import MASTER, SimProcess, VirtualHost
from tests.outer.simulation.schedule import Killed, Scheduler
from tests.outer.simulation.small_run import SmallRun, is_deadly, right_answer
from tests.outer.simulation.turmoil import OLD, Turmoil

HANG = 400.0  # seconds after the last fault by which a run must have ended
CALM_EVERY = 25  # one seed in so many has no faults
DEADLY = 5  # the last digit of seeds in which a chunk kills its workers
LATE, LOSING = (
    frozenset({"stale", "again", "delay", "reorder"}),
    frozenset({"beats", "torn", "full", "handle", "replay"}),
)
QUIET = frozenset({"network", "clocks", "slow", "handle", "old"})  # faults that hide no death


class Stopped(BaseException):
    """SIGTERM or Ctrl-C: the process ends in good order."""


class World:
    """Everything about one seed. ``failure`` tells what went wrong, None if nothing did. ``drop``: kinds of faults to
    leave out; ``only``: just these, all of them."""

    def __init__(
        self,
        seed: int,
        *,
        drop: FrozenSet[str] = frozenset(),
        only: Optional[FrozenSet[str]] = None,
        trace: Optional[List[str]] = None,
    ) -> None:
        self.seed, self.trace = seed, trace
        self.scheduler = Scheduler()
        rng = random.Random(f"{seed} world")
        self.ids, self.times = random.Random(f"{seed} ids"), random.Random(f"{seed} times")
        # Without a fault, every chunk is evaluated once and all is over soon.
        self.end = 0.0 if seed % CALM_EVERY == 0 and only is None else rng.choice([20.0, 40.0, 80.0])
        self.deadly = seed % 10 == DEADLY and only is None
        self.faults = Faults(self, seed, self.end, drop, only, QUIET if self.deadly else ALL)
        self.server, self.os = Server(), VirtualOS(self)
        self.clients: Dict[str, Client] = {}
        self.kernel: Dict[Tuple[str, int], SimProcess] = {}
        self.nodes = [f"node{i}" for i in range(rng.choice([1, 1, 2, 3]))] + ["node0.other"] * rng.choice([0, 1])
        self.workers = rng.choice([1, 2, 2, 3, 4])
        self.coarse = rng.choice([1.0, 6.0, 12.0])
        self.full = self.quitting = False
        self.living: List[SimProcess] = []
        self.incarnations = 0
        self.kinds_of_run: Dict[str, Any] = dict(
            generations=rng.choice([1, 2, 4]),
            chunks=rng.choice([1, 2, 3, 5]),
            members=rng.choice([1, 2]),
            calls=rng.choice([1, 1, 2]),
        )
        self.run = SmallRun("run", 1.0, **self.kinds_of_run)
        self.expected = self.run.undisturbed(self.deadly)
        self.stream = rng.choice([0, 0, 1, 2, 4])  # chunks that are out at a time; 0: all, by evaluate()
        self.lanes = rng.choice([0, 4])  # files that a master reads or writes side by side
        self.quits = rng.random() < 0.3  # workers are told to end when the run has
        self.timeout = rng.choice([8.0, 15.0, 30.0])
        self.long = rng.choice([0.1, 2.0, 8.0])  # seconds that an evaluation takes at most
        self.raised: Dict[Tuple[int, int, str], bool] = {}
        self.kills = self.evaluations = 0
        late = math.inf if self.deadly or not self.faults.kinds else rng.choice([2.0, 4.0])
        self.patience = Patience(rng.choice([1, 2, 3, 5]) if self.deadly else 10**6, late)
        self.versions: Dict[int, int] = {}
        # How long two may believe to own a slot while both run: each finds the other's beat in its file when it beats
        # itself. Unless beats are late, or get lost several times in a row: a worker that has just written sees its own
        # beat until the other's is there, so chance decides, and 50 s were needed once in 10,000 seeds.
        kinds = self.faults.kinds
        self.grace = 2.5 + (8.0 if "network" in kinds else 0.0) + 2 * self.faults.longest * bool(kinds & LATE)
        self.grace += 40.0 * bool(kinds & LOSING)
        self._number = 0

    @property
    def now(self) -> float:
        return self.scheduler.now

    @property
    def process(self) -> SimProcess:
        return self.scheduler.current.process  # type: ignore[return-value]

    @property
    def failure(self) -> Optional[str]:
        return self.scheduler.failure

    def count(self) -> int:
        self._number += 1
        return self._number

    def say(self, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now:10.4f} {self.scheduler.current.process.name:12} {what}")

    # ---------------------------------------------------------------------------------------------- system calls

    def look_step(self, name: str) -> None:
        """Before a look for a file that may well not be there: the commonest call of all."""
        if self.process.dead:
            raise Killed

    def step(self, what: str, name: str) -> None:
        """Between any two system calls: time passes, and the process may be stopped or killed."""
        process, faults = self.process, self.faults
        self.say(f"{what} {name}")
        latency = self.times.random()
        latency = 0.0005 * latency if latency < 0.9 else 0.02 * latency
        if faults.happens("network", f"{what} {name}"):
            latency += faults.draw("network", 0.0, 1.0)
        self.scheduler.wait(latency)
        kind = "kill master" if process.slot == MASTER else "kill worker"
        if (
            kind in faults.kinds
            and not self.deadly
            and faults.happens(kind, f"at {what} {name}", faults.rate[kind] / 4)
        ):
            self.kill(process)
            raise Killed
        if "term" in faults.kinds and self.scheduler.current is process.tasks[0]:
            if faults.happens("term", f"at {what} {name}", faults.rate["term"] / 4):
                raise Stopped
        if "pause" in faults.kinds and faults.happens("pause", f"at {what} {name}", faults.rate["pause"] / 8):
            self.pause(process)
            self.scheduler.wait(0.0)

    def kill(self, process: SimProcess) -> None:
        self.say(f"kills {process.name}")
        process.kill()
        self._gone(process)

    def pause(self, process: SimProcess) -> None:
        process.stop()
        self._beliefs(process.slot)
        self.scheduler.call(
            self.faults.draw("pause", 0.05, self.faults.draw("pause", 1.0, 45.0)), lambda: self.proceed(process)
        )
        if self.faults.happens("twin", f"of the stopped {process.name}", 0.5):
            self.scheduler.call(self.faults.draw("twin", 0.0, 10.0), lambda: self.start(process.slot, extra=True))

    def proceed(self, process: SimProcess) -> None:
        if process.stopped:
            self.say(f"SIGCONT to {process.name}")
            process.proceed()
            self._beliefs(process.slot)

    # ---------------------------------------------------------------------------------------------- who lives

    def start(self, slot: int, extra: bool = False, run: Optional[SmallRun] = None) -> None:
        if self.scheduler.over or (extra and self.now >= self.end):
            return
        name = f"{'master' if slot == MASTER else f'worker{slot}'}.{self.count()}"
        node = self.nodes[0] if slot == MASTER and not extra else self.ids.choice(self.nodes)
        process = SimProcess(self, name, slot, node)
        process.extra = extra
        self.living.append(process)
        self.say(f"starts {name} on {process.node} pid {process.pid}")
        body = (lambda: self._master(process, run or self.run)) if slot == MASTER else (lambda: self._worker(process))
        self.scheduler.spawn(process, lambda: self._life(process, body))

    def _life(self, process: SimProcess, body: Callable[[], None]) -> None:
        try:
            body()
            self.say("ends")
        except (SecondMasterError, SecondWorkerError) as e:
            self.say(f"ends: {type(e).__name__}: {e}")
        except Stopped:
            self.say("ends in good order")
        except ExchangeError as e:
            self.say(f"ends: {e}")
            if not self.faults.kinds & {"full"}:
                self.scheduler.fail(f"{process.name} ended though the folder can be used: {e}")
        process.kill()
        self._gone(process)

    def _gone(self, process: SimProcess) -> None:
        if process in self.living:
            self.living.remove(process)
            process.owner = None
            self._beliefs(process.slot)
            if not process.extra and not self.quitting:
                self.scheduler.call(self.times.uniform(0.05, 4.0), lambda: self._replace(process.slot))

    def _replace(self, slot: int) -> None:
        if not any(p.slot == slot and not p.extra for p in self.living):
            self.start(slot)

    def claimed(self, process: SimProcess, owner: Any) -> None:
        process.owner = owner
        self._beliefs(process.slot)

    def _beliefs(self, slot: int) -> None:
        """Two that run and believe to own a slot must find out."""
        version = self.versions[slot] = self.versions.get(slot, 0) + 1
        if sum(p.slot == slot and p.believes() for p in self.living) > 1:

            def check() -> None:
                believers = [p.name for p in self.living if p.slot == slot and p.believes()]
                if self.versions[slot] == version and len(believers) > 1:
                    self.scheduler.fail(f"{' and '.join(believers)} both own slot {slot} for {self.grace} s")

            self.scheduler.call(self.grace, check)

    # ---------------------------------------------------------------------------------------------- bodies

    def _worker(self, process: SimProcess) -> None:
        def load() -> Any:
            self.claimed(process, worker)
            self.scheduler.wait(self.times.uniform(0.0, 1.0))
            return lambda *args: self._evaluate(process, *args)

        worker = Worker(0, process.slot, Files(FOLDER), VirtualHost(process), load)  # type: ignore[arg-type]
        worker.run()

    def _evaluate(
        self, process: SimProcess, config: Dict[str, Any], worlds: Any, seeds: Any, mode: str, threads: int
    ) -> Dict[str, Any]:
        chunk = Chunk("", 0, 0, 0, mode, config, worlds, seeds)
        self.evaluations += 1
        self.say(f"evaluates {seeds.tolist()} {mode} of incarnation {config['incarnation']}")
        seconds = self.times.uniform(0.0, self.long)
        if self.faults.happens("slow", f"{seeds.tolist()}", 0.1):
            seconds += self.faults.draw("slow", 5.0, 30.0)
        self.scheduler.wait(seconds)
        if self.deadly and is_deadly(seeds, mode) and config["incarnation"] != OLD:
            self.kills += 1
            self.kill(process)
            raise Killed
        key = (config["incarnation"], int(seeds[0]), mode)
        if key not in self.raised and self.faults.happens("errors", f"{seeds.tolist()}", 0.1):
            self.raised[key] = True
            raise MemoryError("for once")
        return right_answer(chunk)

    def _master(self, process: SimProcess, run: SmallRun) -> None:
        self.incarnations += 1
        incarnation = self.incarnations
        options: Dict[str, Any] = {"worker_timeout": self.timeout, "patience": self.patience}
        host: Any = VirtualHost(process)
        with Dispatcher(FOLDER, 0, run.id, files=Files(FOLDER), host=host, **options) as dispatcher:
            self.claimed(process, dispatcher)
            state = SmallRun(**vars(run))  # the checkpoint
            while state.generation < state.generations:
                scores: List[float] = []
                for call in range(state.calls):
                    chunks = state.questions(call, incarnation)
                    results = self._ask(dispatcher, chunks)
                    self._check(process, chunks, results)
                    scores += [float(s) for r in results for s in r.values["score"]]
                state.learn(scores)
                self.step("checkpoint", run.id)
                vars(run).update(vars(state))
                self.step("checkpointed", run.id)
            if run is self.run:
                self._ended(dispatcher)

    def _ask(self, dispatcher: Dispatcher, chunks: List[Chunk]) -> List[ChunkResult]:
        if self.stream == 0:
            return dispatcher.evaluate(chunks)
        tickets: List[int] = []
        results: List[ChunkResult] = []
        for chunk in chunks:
            if len(tickets) - len(results) >= self.stream:
                results.append(dispatcher.result(tickets[len(results)]))
            tickets.append(dispatcher.submit(chunk))
        return results + [dispatcher.result(ticket) for ticket in tickets[len(results) :]]

    def _ended(self, dispatcher: Dispatcher) -> None:
        """The run is complete: was it the right one, at the right price?"""
        run = self.run
        wanted = run.generations * run.calls * run.chunks
        if run.results != self.expected:
            self.scheduler.fail(f"results {run.results}, undisturbed {self.expected}")
        if self.evaluations != wanted and not self.faults.kinds and not self.deadly:
            self.scheduler.fail(f"{self.evaluations} evaluations of {wanted} chunks though nothing went wrong")
        if self.deadly and self.kills != self.patience.max_attempts:
            self.scheduler.fail(f"a chunk killed {self.kills} workers, {self.patience.max_attempts} are allowed")
        if not self.quits or self.now < self.end:
            self.scheduler.over = True
            return
        self.scheduler.wait(max(0.0, self.end + self.faults.longest + 3.0 - self.now))  # what was delayed is there
        there = [p for p in self.living if p.slot != MASTER and p.since < self.now - 20.0]
        self.say(f"tells {len(there)} workers to quit")
        self.quitting = True
        dispatcher.close(quit_workers=True)
        self.scheduler.wait(60.0)
        left = [p.name for p in there if p in self.living]
        if left:
            self.scheduler.fail(f"{left} did not quit when told to")
        self.scheduler.over = True

    def _check(self, process: SimProcess, chunks: List[Chunk], results: List[ChunkResult]) -> None:
        """Every chunk answered once, in order, by an evaluation that this very master asked for."""
        if len(results) != len(chunks):
            self.scheduler.fail(f"{len(results)} results for {len(chunks)} chunks")
        for chunk, result in zip(chunks, results):
            right = right_answer(chunk)
            who = (result.run_id, result.generation, result.chunk_id)
            if who != (chunk.run_id, chunk.generation, chunk.chunk_id):
                self.scheduler.fail(f"{process.name} accepted {who} for {chunk.label}")
            elif self.deadly and is_deadly(chunk.seeds, chunk.mode):
                if not result.error or not result.values["score"].isnan().all():
                    self.scheduler.fail(f"{chunk.label} kills its workers and has an answer")
            elif result.error:
                self.scheduler.fail(f"{process.name} gave up {chunk.label}: {result.error}")
            else:
                for name in ("score", "seed", "origin"):
                    if not torch.equal(result.values[name], right[name]):
                        found = f"{name} {result.values[name].tolist()}, right is {right[name].tolist()}"
                        self.scheduler.fail(f"{process.name} accepted a wrong answer to {chunk.label}: {found}")

    # ---------------------------------------------------------------------------------------------- what happens

    def go(self) -> None:
        """The whole life of this world."""
        self.start(MASTER)
        for slot in range(self.workers):
            self.scheduler.call(self.times.uniform(0.0, 2.0), lambda slot=slot: self.start(slot))  # type: ignore[misc]
        Turmoil(self).begin()
        self.scheduler.call(self.end, self._settle)
        self.scheduler.call(
            self.end + HANG, lambda: self.scheduler.fail(f"not at its end {HANG} s after the last fault")
        )
        self.scheduler.run()

    def _settle(self) -> None:
        """No more faults: who was stopped goes on, and nobody is there twice."""
        self.say("the last fault is over")
        self.full = False
        for process in list(self.living):
            if process.extra:
                self.kill(process)
            else:
                self.proceed(process)
        for slot in range(MASTER, self.workers):
            self._replace(slot)
