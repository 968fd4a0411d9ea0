"""Side by side where items wait, one after the other where they do not; always all of them, in order."""

from __future__ import annotations

import threading
import time

import pytest

from envolve.outer.exchange import lanes as lanes_module
from envolve.outer.exchange.lanes import Lanes, raise_first


def who(item):
    if item == 3:
        raise KeyError("three")
    return item, threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize("count", [0, 4])
def test_order_and_exceptions(count):
    def function(item):
        time.sleep(0.002 if count else 0.0)
        return who(item)

    lanes = Lanes(count)
    out = lanes.map(function, range(9))
    lanes.close()
    assert [r[0] if isinstance(r, tuple) else "failed" for r in out] == [0, 1, 2, "failed", 4, 5, 6, 7, 8]
    with pytest.raises(KeyError, match="three"):
        raise_first(out)
    raise_first(out[:3])
    assert [r[1] for r in out if isinstance(r, tuple)] == (3 * [True] + 5 * [False] if count else 8 * [True])


def test_waiting_is_shared():
    lanes, met = Lanes(16), threading.Barrier(16)
    lanes.map(lambda _: time.sleep(0.05), range(3))  # slow, one after the other
    out = lanes.map(lambda _: met.wait(60), range(32))  # nobody goes on before sixteen wait at the same time
    lanes.close()
    assert sorted(out) == sorted(2 * list(range(16)))


def test_a_core_that_is_lost_is_no_slow_file(monkeypatch):
    monkeypatch.setattr(lanes_module, "SLOW", 0.0)  # every item takes too long, by the clock
    lanes, main = Lanes(4), threading.main_thread()
    monkeypatch.setattr(lanes_module, "_given_up", lambda: 7)
    assert lanes.map(lambda _: threading.current_thread(), range(9)) == 9 * [main]
    counts = iter(range(100))
    monkeypatch.setattr(lanes_module, "_given_up", lambda: next(counts))
    assert lanes.map(lambda _: threading.current_thread(), range(9))[:4].count(main) == 3
    lanes.close()


def test_files_that_were_slow_once_are_tried_alone_again(monkeypatch):
    monkeypatch.setattr(lanes_module, "PROBE", 2)
    lanes, main = Lanes(2), threading.main_thread()
    lanes.map(lambda _: time.sleep(0.002), range(3))

    def first(slow: float) -> bool:
        def function(_):
            time.sleep(slow)
            return threading.current_thread()

        return lanes.map(function, range(4))[0] is main

    assert [first(0.02) for _ in range(7)] == [False, False, True, False, True, False, True]
    lanes.close()


def test_threads_end_where_nothing_waits_any_more():
    lanes, main = Lanes(4), threading.main_thread()
    lanes.map(lambda _: time.sleep(0.002), range(9))
    for _ in range(20):  # a busy machine may take one of the fast calls for a slow one
        lanes.map(int, range(64))
        threads = lanes.map(lambda _: threading.current_thread(), range(5))
        if threads == 5 * [main]:
            break
    lanes.close()
    assert threads == 5 * [main]
