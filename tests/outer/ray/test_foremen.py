"""Foremen without Ray: letters in any order, letters that find no room, foremen that die."""

from __future__ import annotations

import asyncio
import queue
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from envolve.outer.ray import foremen
from envolve.outer.ray.events import ANSWER, LOST
from envolve.outer.ray.foreman import CHUNK, DISMISS, HIRE, LESSON, LESSONS, Foreman, events_of
from envolve.outer.ray.foremen import Foremen
from envolve.outer.ray.parcel import unwrap, wrap


class Full(Exception):
    pass


class Worker:
    """A handle. ``said``: all that it was called with."""

    def __init__(self):
        self.said = []
        self.learn = SimpleNamespace(remote=lambda key, data: self.said.append((key, data)))
        self.evaluate = SimpleNamespace(remote=self._evaluate)

    def _evaluate(self, data):
        self.said.append(data)

        async def answer():
            return data[::-1]

        return answer()


class Call:
    """The reference to what a call returns."""

    def __init__(self):
        self._future = Future()
        self.resolve, self.fail = self._future.set_result, self._future.set_exception

    def future(self):
        return self._future


class Handle:
    """A foreman as the driver sees it. ``room``: bytes that a letter may have."""

    def __init__(self, room=10**9):
        self.letters, self.listening, self.room, self.killed = [], [], room, False
        self.take = SimpleNamespace(remote=self._take)
        self.ended = SimpleNamespace(remote=lambda: self.listening.append(Call()) or self.listening[-1])

    def _take(self, number, letter, hired=None):
        orders = [(*values, data) for values, data in unwrap(letter)]
        if sum(len(order[3]) for order in orders) > self.room:
            raise Full("no room in the object store")
        assert [o[1] for o in orders if o[0] == HIRE] == list(hired or {})
        self.letters.append((number, orders, Call()))
        return self.letters[-1][2]


class Ray:
    """What of Ray the driver's side of foremen calls."""

    exceptions = SimpleNamespace(RayError=Full)

    def __init__(self, room=10**9):
        self.made, self.room = [], room

    def remote(self, cls):
        assert cls is Foreman
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=self._make))

    def _make(self):
        self.made.append(Handle(self.room))
        return self.made[-1]

    def kill(self, handle):
        handle.killed = True


def driver(room=10**9, workers=2, slots=foremen.MANY):
    ray, handles = Ray(room), {w: Worker() for w in range(workers)}
    made = Foremen(ray, handles, lambda node: {})
    for worker in handles:
        made.hire(worker, "node", slots)
    return made, ray, handles


def sealed(orders):
    return wrap([(order[:-1], order[-1]) for order in orders])


def drained(events):
    found = []
    while True:
        try:
            found.append(events.get_nowait())
        except queue.Empty:
            return found


# ------------------------------------------------------------------------------------------------------ the foreman


def test_letters_in_any_order_are_obeyed_in_theirs():
    async def go():
        foreman, worker = Foreman(), Worker()
        letters = [
            [(HIRE, 7, None, b""), (LESSON, 0, "a", b"first")],
            [(CHUNK, 7, [1, "a"], b"ab")],
            [(LESSON, 0, "b", b"second"), (CHUNK, 7, [2, "b"], b"cd")],
            [(DISMISS, 7, None, b""), (CHUNK, 7, [3, "a"], b"ef")],
        ]
        for number in (3, 1, 0, 2):
            await foreman.take(number, sealed(letters[number]), {} if number else {7: worker})
        events = []
        while len(events) < 2:
            events += events_of(await foreman.ended())
        return worker.said, events

    said, events = asyncio.run(go())
    lessons, chunks = [s for s in said if isinstance(s, tuple)], [s for s in said if isinstance(s, bytes)]
    assert lessons == [("a", b"first"), ("b", b"second")] and chunks == [b"ab", b"cd"]
    assert [(e.kind, e.worker, e.token, e.value) for e in events] == [(ANSWER, 7, 1, b"ba"), (ANSWER, 7, 2, b"dc")]


def test_a_lesson_that_came_once_is_passed_on_to_each_worker():
    async def go():
        foreman, workers = Foreman(), (Worker(), Worker())
        await foreman.take(0, sealed([(HIRE, 0, None, b""), (HIRE, 1, None, b"")]), dict(enumerate(workers)))
        chunks = [(CHUNK, 0, [1, "a"], b"ab"), (CHUNK, 1, [2, "a", "lost"], b"cd")]
        await foreman.take(1, sealed([(LESSON, 0, "a", b"first"), *chunks]))
        await asyncio.gather(*foreman._under_way)
        return [worker.said for worker in workers]

    assert asyncio.run(go()) == [[("a", b"first"), b"ab"], [("a", b"first"), b"cd"]]


# ------------------------------------------------------------------------------------------------------- the driver


def test_many_orders_are_one_letter():
    made, ray, handles = driver()
    made.learn(0, "key", b"config")
    made.send(0, 1, b"chunk")
    made.send(1, 2, b"other")
    (foreman,) = ray.made
    assert foreman.letters == [], "nothing goes out before the flush"
    made.flush()
    made.flush()
    ((number, letter, _),) = foreman.letters
    assert number == 0 and [order[0] for order in letter] == [HIRE, HIRE, LESSON, CHUNK, CHUNK]
    for token in range(foremen.LETTER + 1):
        made.send(0, token, b"")
    assert [(n, len(orders)) for n, orders, _ in foreman.letters[1:]] == [(1, foremen.LETTER)], "a full one waits not"
    made.send(1, 900, bytes(foremen.LETTER_BYTES))
    assert len(foreman.letters) == 3, "nor does a heavy one"
    assert handles[0].said == []


def test_a_lesson_travels_once_per_node_for_as_long_as_both_sides_keep_it():
    made, ray, _ = driver(workers=3)
    keys = [f"{n}" for n in range(LESSONS + 1)]
    order = [(worker, "0") for worker in range(3)] + [(0, key) for key in keys[1:]] + [(1, keys[-1]), (1, "0")]
    for token, (worker, key) in enumerate(order):
        made.learn(worker, key, key.encode())
        made.send(worker, token, b"")
    made.flush()

    async def read(handle):
        foreman, workers = Foreman(), {worker: Worker() for worker in range(3)}
        for number, letter, _ in handle.letters:
            await foreman.take(number, sealed(letter), workers if number == 0 else {})
        await asyncio.gather(*foreman._under_way)
        return [[s for s in worker.said if s] for worker in workers.values()]

    (foreman,) = ray.made
    sent = [order[2] for _, letter, _ in foreman.letters for order in letter if order[0] == LESSON]
    assert sent == [*keys, "0"], "the oldest was dropped"
    wanted = [[(key, key.encode()) for w, key in order if w == worker] for worker in range(3)]
    assert asyncio.run(read(foreman)) == wanted, "every worker hears all of its own"


def test_a_lesson_without_room_is_sent_again_with_the_next_worker():
    made, ray, _ = driver(room=50)
    made.learn(0, "key", bytes(60))
    made.send(0, 1, b"")
    made.flush()
    ray.made[0].room = 100
    made.learn(1, "key", bytes(60))
    made.send(1, 2, b"")
    made.flush()
    (_, letter, _) = ray.made[0].letters[-1]
    assert letter == [(LESSON, 0, "key", bytes(60)), (CHUNK, 1, [2, "key"], b"")]


def test_a_chunk_without_room_leaves_its_lesson_to_the_next():
    made, ray, _ = driver(room=50)
    made.learn(0, "key", b"config")
    made.send(0, 1, bytes(60))
    made.flush()
    made.send(0, 2, b"")
    made.flush()
    (_, letter, _) = ray.made[0].letters[-1]
    assert letter == [(CHUNK, 0, [2, "key"], b"")]


def test_small_nodes_have_none():
    made, ray, _ = driver(slots=foremen.MANY - 1)
    assert not ray.made and not made.has(0)


def test_answers_come_in_bundles():
    made, ray, _ = driver()
    made.send(0, 1, b"a")
    made.send(1, 2, b"b")
    made.flush()
    (foreman,) = ray.made
    foreman.listening[0].resolve(wrap([((ANSWER, 0, 1, ""), b"A"), ((ANSWER, 1, 2, ""), b"B")]))
    assert made.get(1.0).value == b"A" and made.get(1.0).value == b"B"
    assert len(foreman.listening) == 2, "it is asked for more as soon as a bundle is there"
    with pytest.raises(queue.Empty):
        made.get(0.01)


def test_what_finds_no_room_is_lost_alone():
    made, ray, _ = driver(room=50)
    made.learn(0, "key", bytes(10))
    made.send(0, 1, bytes(60))
    made.send(1, 2, bytes(20))
    made.flush()
    (foreman,) = ray.made
    numbers, letters = zip(*((n, orders) for n, orders, _ in foreman.letters), strict=True)
    assert numbers == tuple(range(len(numbers))), "a letter that was not sent leaves no gap"
    assert [order[2] for letter in letters for order in letter if order[0] == CHUNK] == [[2]]
    assert [order[0] for letter in letters for order in letter].count(LESSON) == 1
    assert [(e.kind, e.worker, e.token) for e in drained(made)] == [(LOST, 0, 1)]


@pytest.mark.parametrize("how", ["it dies", "a letter does not arrive"])
def test_a_dead_foreman_leaves_its_workers_to_the_driver(how):
    made, ray, handles = driver()
    made.learn(0, "key", b"config")
    made.send(0, 1, b"a")
    made.send(1, 2, b"b")
    made.flush()
    (foreman,) = ray.made
    foreman.listening[0].resolve(wrap([((ANSWER, 0, 1, ""), b"A")]))
    assert made.get(1.0).token == 1
    call = foreman.listening[1] if how == "it dies" else foreman.letters[0][2]
    call.fail(Full("killed"))
    (lost,) = drained(made)
    assert (lost.kind, lost.worker, lost.token) == (LOST, 1, 2) and "killed" in lost.text
    assert handles[0].said == [("key", b"config")], "what it may not have passed on is taught again"
    assert not made.has(0) and foreman.killed
    made.hire(1, "node", foremen.MANY)
    assert len(ray.made) == 1, "no other takes its place"


def test_a_dismissed_worker_is_lost_with_nothing_else():
    made, ray, _ = driver()
    made.send(0, 1, b"a")
    made.send(1, 2, b"b")
    made.dismiss(0)
    made.dismiss(0)
    made.flush()
    (foreman,) = ray.made
    foreman.listening[0].fail(Full("killed"))
    assert [(e.kind, e.token) for e in drained(made)] == [(LOST, 2)]
