"""A candidate in the jail is ended for what it does, never because the machine is busy."""

from __future__ import annotations

import os
import time

import pytest

from envolve.llm.vetting.jail import jailed


def server(seconds: float) -> jailed.Server:
    """One that has started nothing: only its patience is asked for."""
    made = jailed.Server.__new__(jailed.Server)
    made.seconds = seconds
    return made


def looks(
    monkeypatch: pytest.MonkeyPatch, pause: float, used: float, seconds: float = 10.0
) -> tuple[str | None, float]:
    """A child that has ``used`` s of CPU time between two looks, ``pause`` s apart -> why it must end, and after how
    many s."""
    had = [0.0]

    def cpu_time(pid: int) -> float:
        had[0] += used
        return had[0]

    monkeypatch.setattr(jailed, "cpu_time", cpu_time)
    judge, child = server(seconds), jailed.Child(1, 2, 0.0, 0.0)
    for look in range(1, 5000):
        reason = judge._look(child, look * pause)
        if reason or had[0] >= seconds / 2:  # which the kernel ends
            return reason, look * pause
    raise AssertionError("for ever")


def test_one_that_waits_for_a_core_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, 0.3, 0.25)[0] is None
    reason, seconds = looks(monkeypatch, 0.3, 0.003)  # a hundredth of a core
    assert reason is None and seconds > 400


def test_one_that_waits_for_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, seconds = looks(monkeypatch, 0.3, 0.00005)
    assert reason == "it did nothing for 10 s" and 10 <= seconds < 13
    reason, seconds = looks(monkeypatch, 100.0, 0.00005)  # a machine that was stopped for long between two looks
    assert seconds > 100


def test_one_that_trickles_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, seconds = looks(monkeypatch, 1.0, 0.0011)
    assert reason == "it was not done after 600 s" and seconds == 600


def test_the_cpu_time_of_a_process_is_what_the_kernel_says() -> None:
    before = jailed.cpu_time(os.getpid())
    assert before == pytest.approx(time.process_time(), abs=0.5)
    while time.process_time() < before + 0.02:
        pass
    assert jailed.cpu_time(os.getpid()) >= before + 0.01
