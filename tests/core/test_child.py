from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from envolve.core.child import Child, end, how

SLEEPER = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); {}"


def child(tmp_path: Path, code: str, **options: object) -> Child:
    return Child("c", lambda: [sys.executable, "-S", "-c", code], tmp_path / "logs" / "c.log", **options)  # type: ignore[arg-type]


def wait(true: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def code_of(c: Child) -> int:
    codes: list[int | None] = []
    wait(lambda: codes.append(c.ended()) or codes[-1] is not None)
    assert c.ended() is None and c.pid is None  # once
    return codes[-1]  # type: ignore[return-value]


def test_a_life_and_the_next(tmp_path: Path) -> None:
    c = child(
        tmp_path,
        "import os; print(os.environ['A'], sorted(os.sched_getaffinity(0))); os._exit(3)",
        environ={"A": "x"},
        cpus={0},
        quick_seconds=60.0,
        first_delay=0.01,
        max_delay=0.03,
    )
    assert c.due()
    c.start()
    assert not c.due() and code_of(c) == 3 and how(3) == "with exit code 3"
    assert not c.due()  # nobody said that it should run again
    assert [c.again(), c.again(), c.again()] == [0.02, 0.03, 0.03]
    assert (c.deaths, c.quick_deaths, c.starts) == (3, 3, 1)
    wait(c.due)
    c.start()
    assert code_of(c) == 3 and c.last_words() == "x [0]\nx [0]"


def test_who_lived_long_is_started_soon(tmp_path: Path) -> None:
    c = child(tmp_path, "", quick_seconds=0.0)
    c.start()
    code_of(c)
    assert c.again() == c.again() == 0.1 and c.quick_deaths == 0 and c.deaths == 2


def test_what_it_started_ends_with_it(tmp_path: Path) -> None:
    c = child(tmp_path, SLEEPER.format("sys.exit(0)"))
    c.start()
    assert code_of(c) == 0
    wait(lambda: gone(int(c.last_words())))


def test_end_waits_for_those_who_hear_and_kills_the_others(tmp_path: Path) -> None:
    deaf = child(
        tmp_path / "deaf",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER.format("signal.pause()"),
    )
    hears, never = child(tmp_path / "hears", SLEEPER.format("p.wait()")), child(tmp_path, "")
    for c in (deaf, hears):
        c.start()
    wait(lambda: all(c.log_path.exists() and c.log_path.read_text().endswith("\n") for c in (deaf, hears)))
    pids = [c.pid for c in (deaf, hears)]
    assert deaf.process is not None
    patience = deaf.process.wait

    def until_the_other_has_heard(timeout: float | None = None) -> int:
        wait(lambda: gone(pids[1] or 0))
        return patience(None if timeout is None else 0.1)

    deaf.process.wait = until_the_other_has_heard  # type: ignore[method-assign]
    assert end([deaf, hears, never], 60.0) == {deaf: -9, hears: -15} and how(-9) == "by signal 9"
    assert all(gone(pid) for pid in pids if pid) and not any(c.due() for c in (deaf, hears, never))
    wait(lambda: all(gone(int(c.last_words())) for c in (deaf, hears)))


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    c = Child("c", lambda: ["no-such-program"], tmp_path / "c.log")
    with pytest.raises(FileNotFoundError):
        c.start()
    assert c.pid is None and "c.log" in Child("c", list, tmp_path / "d" / "c.log").last_words()
    assert os.path.exists(tmp_path / "c.log")
