"""A virtual clock and the tasks that live on it. One task runs at a time, so a seed alone decides what happens.

A task is a thread that hands over only inside :meth:`Scheduler.wait`; the clock jumps to whatever comes next. A process
is some tasks that are stopped, continued and killed together; whoever is killed gets :class:`Killed` from the call that
it was in, and from every further one, so that no ``finally`` of the dead does anything.
"""

from __future__ import annotations

import heapq
import threading
from typing import Any, Callable, Iterable, List, Optional, Tuple, Union


class Killed(BaseException):
    """SIGKILL. No code under test may catch it."""


class Process:
    def __init__(self, name: str, scheduler: Scheduler) -> None:
        self.name, self._scheduler = name, scheduler
        self.dead = self.stopped = False
        self.ended: Optional[BaseException] = None
        self.tasks: List[Task] = []
        self.parked: List[Task] = []  # were due while the process was stopped

    def kill(self) -> None:
        if self.dead:
            return
        self.dead, self.stopped, self.parked = True, False, []
        for task in self.tasks:
            if not task.done and task is not self._scheduler.current:
                self._scheduler.wake(task)

    def stop(self) -> None:
        self.stopped = not self.dead

    def proceed(self) -> None:
        self.stopped = False
        parked, self.parked = self.parked, []
        for task in parked:
            self._scheduler.wake(task)


class Task:
    def __init__(self, process: Process, body: Callable[[], None]) -> None:
        self.process, self.body = process, body
        self.go = threading.Lock()
        self.go.acquire()
        self.thread: Optional[threading.Thread] = None
        self.done = False
        self.due = -1  # number of the one event that counts


class Scheduler:
    def __init__(self) -> None:
        self.now = 0.0
        self.over = False
        self.failure: Optional[str] = None
        self._heap: List[Tuple[float, int, Union[Task, Callable[[], None]]]] = []
        self._count = 0
        self._main = Task(Process("main", self), lambda: None)
        self._all: List[Task] = []
        self.current = self._main
        self.switches = self.events = 0

    # ---------------------------------------------------------------------------------------------- from inside

    def wait(self, seconds: float) -> None:
        """The current task goes on after this time. Raises Killed if its process has died meanwhile."""
        me = self.current
        if me.process.dead:
            raise Killed
        heap, at = self._heap, self.now + seconds
        if not me.process.stopped and not self.over and (not heap or heap[0][0] > at):
            self.now = at  # nobody else wants to do anything before
            return
        self._push(at, me)
        self.suspend()

    def suspend(self) -> None:
        """Until somebody wakes the current task."""
        me = self.current
        task = self._next()
        if task is not me:
            self._hand_over(task)
            me.go.acquire()
        self.current = me
        if me.process.dead:
            raise Killed

    def call(self, seconds: float, function: Callable[[], None]) -> None:
        """A fault, or something that the network does. Must not wait."""
        self._count += 1
        heapq.heappush(self._heap, (self.now + seconds, self._count, function))

    def wake(self, task: Task) -> None:
        self._push(self.now, task)

    def spawn(self, process: Process, body: Callable[[], None]) -> Task:
        task = Task(process, body)
        process.tasks.append(task)
        self._all.append(task)
        self.wake(task)
        return task

    def fail(self, what: str) -> None:
        """An oracle says that something went wrong; the first one counts."""
        if self.failure is None:
            self.failure = what
        self.over = True

    # ---------------------------------------------------------------------------------------------- machinery

    def _push(self, at: float, task: Task) -> None:
        self._count += 1
        task.due = self._count
        heapq.heappush(self._heap, (at, self._count, task))

    def _next(self) -> Task:
        heap = self._heap
        while heap and not self.over:
            at, number, thing = heapq.heappop(heap)
            self.now = max(self.now, at)
            self.events += 1
            if isinstance(thing, Task):
                if thing.due != number or thing.done:
                    continue
                if thing.process.stopped:
                    thing.process.parked.append(thing)
                    continue
                return thing
            try:
                thing()
            except Exception as e:
                self.fail(f"the simulation itself: {type(e).__name__}: {e}")
        self.over = True
        return self._main

    def _hand_over(self, task: Task) -> None:
        self.switches += 1
        if task.thread is None and task is not self._main:
            task.thread = threading.Thread(target=self._life, args=(task,), daemon=True)
            task.thread.start()
        else:
            task.go.release()

    def _life(self, task: Task) -> None:
        self.current = task
        try:
            if not task.process.dead:
                task.body()
        except Killed:
            pass
        except BaseException as e:
            self.fail(f"{task.process.name}: {type(e).__name__}: {e}")
        task.done = True
        self._hand_over(self._next())

    def run(self) -> None:
        """Until :attr:`over`, or nothing is left to do. Ends all tasks."""
        self.suspend()
        for task in self._all:
            task.process.dead = True
        for task in self._all:
            if task.thread is not None:
                if not task.done:
                    task.go.release()
                    self._main.go.acquire()
                task.thread.join()


class VirtualLock:
    """threading.Lock for tasks."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._held, self._waiting = scheduler, False, []  # type: ignore[var-annotated]

    def __enter__(self) -> VirtualLock:
        while self._held:
            self._waiting.append(self._scheduler.current)
            self._scheduler.suspend()
        self._held = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._held = False
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task)


class VirtualLanes:
    """outer/exchange/lanes.py with tasks: what threads of one process do side by side, in any order."""

    def __init__(self, scheduler: Scheduler, count: int) -> None:
        self._scheduler, self.count = scheduler, count

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> List[Any]:
        items = list(items)
        out: List[Any] = [None] * len(items)

        def work(i: int) -> None:
            try:
                out[i] = function(items[i])
            except Exception as e:
                out[i] = e

        if self.count == 0 or len(items) < 2:
            for i in range(len(items)):
                work(i)
            return out
        me, left = self._scheduler.current, [len(items)]

        def lane(i: int) -> None:
            work(i)
            left[0] -= 1
            if left[0] == 0:
                self._scheduler.wake(me)

        for i in range(len(items)):
            self._scheduler.spawn(me.process, lambda i=i: lane(i))  # type: ignore[misc]
        self._scheduler.suspend()
        return out

    def close(self) -> None:
        pass
