"""The driver's side of foremen (``outer/ray/foreman.py``): which nodes have one, and what waits to be sent."""

from __future__ import annotations

import contextlib
import queue
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from envolve.outer.ray.events import LOST, Event, words
from envolve.outer.ray.foreman import CHUNK, DISMISS, HIRE, LESSON, LESSONS, Foreman, Order, events_of, keep
from envolve.outer.ray.parcel import wrap

MANY = 16  # slots of a node that gets a foreman
LETTER, LETTER_BYTES = 64, 2**23  # orders and bytes that go out without waiting for more


@dataclass
class Post:
    """A foreman. ``out``: the worker of each token that it has not answered; ``taught``: the latest lessons of each
    worker, for the case that the foreman dies before it has passed them on; ``keeps``: keys of the lessons that the
    foreman has for all its workers; ``due``: keys of those that each worker is to learn with its next chunk."""

    node: str
    handle: Any
    posted: int = 0  # letters
    letter: list[Order] = field(default_factory=list)
    size: int = 0
    out: dict[int, int] = field(default_factory=dict)
    taught: dict[int, deque[tuple[str, bytes]]] = field(default_factory=dict)
    keeps: OrderedDict[str, None] = field(default_factory=OrderedDict)
    due: dict[int, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Bundle:
    """Events of a foreman, or why there will be none any more."""

    node: str
    events: list[Event]
    dead: str = ""


class Foremen:
    """``handles``: the workers, by number; ``pin``: gives the options that bind an actor to a node; ``cls``: of the
    foremen. Events are read with ``get`` and ``get_nowait``, as from a queue."""

    def __init__(self, ray: Any, handles: dict[int, Any], pin: Any, cls: type = Foreman) -> None:
        self._ray, self._handles, self._pin, self._cls = ray, handles, pin, cls
        self._posts: dict[str, Post] = {}
        self._without: set[str] = set()  # nodes whose foreman has died
        self._of: dict[int, Post] = {}  # by worker
        self._arrived: queue.SimpleQueue[Event | Bundle] = queue.SimpleQueue()
        self._opened: deque[Event] = deque()

    # ------------------------------------------------------------------------------------------------------- workers

    def hire(self, worker: int, node: str, slots: int) -> None:
        """Gives a worker to the foreman of its node, if the node is to have one."""
        if slots < MANY or node in self._without:
            return
        post = self._posts.get(node)
        if post is None:
            handle = self._ray.remote(self._cls).options(num_cpus=0, max_restarts=0, **self._pin(node)).remote()
            post = self._posts[node] = Post(node, handle)
            self._listen(post)
        self._add(post, (HIRE, worker, None, b""))
        self._of[worker] = post
        post.taught[worker] = deque(maxlen=LESSONS)

    def dismiss(self, worker: int) -> None:
        post = self._of.pop(worker, None)
        if post is not None:
            post.taught.pop(worker)
            post.due.pop(worker, None)
            post.out = {token: w for token, w in post.out.items() if w != worker}
            self._add(post, (DISMISS, worker, None, b""))

    def close(self) -> None:
        for post in self._posts.values():
            self._kill(post)
        self._posts.clear()
        self._of.clear()

    def _kill(self, post: Post) -> None:
        with contextlib.suppress(Exception):  # it is dead already, or the cluster is
            self._ray.kill(post.handle)

    # ------------------------------------------------------------------------------------------------------- letters

    def has(self, worker: int) -> bool:
        return worker in self._of

    def learn(self, worker: int, key: str, data: bytes) -> None:
        """Teaches a worker, with its next chunk."""
        post = self._of[worker]
        post.taught[worker].append((key, data))
        post.due.setdefault(worker, []).append(key)

    def send(self, worker: int, token: int, data: bytes) -> None:
        post = self._of[worker]
        post.out[token] = worker
        due = post.due.pop(worker, [])
        for key, lesson in post.taught[worker] if due else ():
            if key in due and key not in post.keeps:
                keep(post.keeps, key, None)
                self._add(post, (LESSON, 0, key, lesson))
        self._add(post, (CHUNK, worker, [token, *due], data))

    def flush(self) -> None:
        """Sends what waits."""
        for post in self._posts.values():
            self._post(post)

    def _add(self, post: Post, order: Order) -> None:
        post.letter.append(order)
        post.size += len(order[-1])
        if len(post.letter) >= LETTER or post.size >= LETTER_BYTES:
            self._post(post)

    def _post(self, post: Post) -> None:
        if not post.letter:
            return
        letter, post.letter, post.size = post.letter, [], 0
        try:
            self._call(post, letter)
        except self._ray.exceptions.RayError:  # no room for a large one in the object store
            for order in letter:
                self._singly(post, order)

    def _singly(self, post: Post, order: Order) -> None:
        try:
            self._call(post, [order])
        except self._ray.exceptions.RayError as e:
            kind, worker, name, _ = order
            if kind == CHUNK and post.out.pop(name[0], None) is not None:
                post.due[worker] = [*name[1:], *post.due.get(worker, ())]
                self.put(Event(LOST, worker, name[0], text=words(e)))
            elif kind == LESSON:  # the worker will say what it lacks
                post.keeps.pop(name, None)

    def _call(self, post: Post, letter: list[Order]) -> None:
        """A foreman that misses a letter waits for it for ever, so it is given up with the letter."""

        def done(future: Any) -> None:
            if e := future.exception():
                self.put(Bundle(post.node, [], words(e)))

        hired = {w: self._handles.get(w) for kind, w, _, _ in letter if kind == HIRE}  # None: it is dismissed next
        parcel = wrap([(order[:-1], order[-1]) for order in letter])
        call = post.handle.take.remote(post.posted, parcel, *([hired] if hired else []))
        call.future().add_done_callback(done)
        post.posted += 1

    # -------------------------------------------------------------------------------------------------------- events

    def put(self, event: Event | Bundle) -> None:
        self._arrived.put(event)

    def get(self, timeout: float) -> Event:
        """Raises queue.Empty."""
        while not self._opened:
            self._open(self._arrived.get(timeout=timeout))
        return self._opened.popleft()

    def get_nowait(self) -> Event:
        """Raises queue.Empty."""
        while not self._opened:
            self._open(self._arrived.get_nowait())
        return self._opened.popleft()

    def _open(self, arrived: Event | Bundle) -> None:
        if isinstance(arrived, Event):
            self._opened.append(arrived)
            return
        post = self._posts.get(arrived.node)
        if post is None:
            return
        if arrived.dead:
            self._lose(post, arrived.dead)
            return
        self._listen(post)
        for event in arrived.events:
            post.out.pop(event.token, None)
            self._opened.append(event)

    def _lose(self, post: Post, why: str) -> None:
        """The driver calls the workers of a dead foreman itself. They are taught again what the foreman may not have
        passed on, and chunks that it has not answered are sent again."""
        self._without.add(post.node)
        del self._posts[post.node]
        self._kill(post)
        for worker in [w for w, p in self._of.items() if p is post]:
            del self._of[worker]
            for key, data in post.taught[worker]:
                self._handles[worker].learn.remote(key, data)
        text = f"the foreman of a node died: {why}"
        self._opened.extend(Event(LOST, worker, token, text=text) for token, worker in post.out.items())

    def _listen(self, post: Post) -> None:
        def done(future: Any) -> None:
            e = future.exception()
            self.put(Bundle(post.node, [], words(e)) if e else Bundle(post.node, events_of(future.result())))

        post.handle.ended.remote().future().add_done_callback(done)
