"""The supervisor: who is started again, who is given up, who is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envolve.core.child import Child
from envolve.core.supervisor import GIVEN_UP, RestartPolicy, StartError, Supervisor


def child(tmp_path: Path, name: str, code: str, **options: Any) -> Child:
    words = [sys.executable, "-S", "-c", code]
    return Child(name, lambda: words, tmp_path / f"{name}.log", **{"first_delay": 1e-3, **options})


def look_until(s: Supervisor, true: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not true():
        s.look()
        assert time.monotonic() < end
        time.sleep(0.01)


FOREVER = "import time\nwhile True: time.sleep(0.05)"


def test_each_child_by_its_own_policy(tmp_path: Path) -> None:
    """Final codes end it; faults and signals are counted apart; so are all starts."""
    told: list[str] = []
    of = {
        child(tmp_path, "done", "raise SystemExit(0)"): RestartPolicy(final=(0, 2)),
        child(tmp_path, "wrong", "raise SystemExit(2)"): RestartPolicy(final=(0, 2)),
        child(tmp_path, "broken", "raise SystemExit(3)"): RestartPolicy(quick_deaths=3, quick_kills=1),
        child(tmp_path, "killed", "import os; os.kill(os.getpid(), 9)"): RestartPolicy(quick_deaths=1, quick_kills=2),
        child(tmp_path, "often", "raise SystemExit(0)", quick_seconds=0.0): RestartPolicy(starts=4),
        child(tmp_path, "runs", FOREVER): RestartPolicy(),
    }
    s = Supervisor(of, 5.0, tell=lambda level, text, *args: told.append(text % args))
    try:
        look_until(s, lambda: len(s.codes) == 5)
        names = {c.name: c for c in of}
        assert {c.name: code for c, code in s.codes.items()} == {
            "done": 0,
            "wrong": 2,
            "broken": GIVEN_UP,
            "killed": GIVEN_UP,
            "often": GIVEN_UP,
        }
        starts = {name: c.starts for name, c in names.items()}
        assert starts == {"done": 1, "wrong": 1, "broken": 3, "killed": 2, "often": 4, "runs": 1}
        assert list(s.pids()) == ["runs"]
        assert sum("broken ended with exit code 3; starting it again" in t for t in told) == 2
        assert any("broken ended with exit code 3, soon after its start, 3 times in a row" in t for t in told)
        assert any("killed ended by signal 9, soon after its start, 2 times in a row" in t for t in told)
        assert any("often ended with exit code 0, and was started 4 times; it is given up" in t for t in told)
        assert not any(t.startswith(("done", "wrong")) for t in told)
        for _ in range(3):
            s.look()
        assert {name: c.starts for name, c in names.items()} == starts, "who is given up stays so"
    finally:
        s.close()
    assert not s.pids()


def test_what_is_not_needed_is_left_dead(tmp_path: Path) -> None:
    needed = [True]
    c = child(tmp_path, "c", "raise SystemExit(1)")
    s = Supervisor({c: RestartPolicy()}, 5.0, needed=lambda _: needed[0])
    s.look()
    needed[0] = False
    look_until(s, lambda: c.process is None)
    for _ in range(3):
        s.look()
    assert c.starts == 1 and not s.codes and c.deaths == 0


def test_a_child_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    c = Child("worker 0", lambda: [str(tmp_path / "no such program")], tmp_path / "log")
    with pytest.raises(StartError, match="^cannot start worker 0 with its output in .*/log: No such file"):
        Supervisor({c: RestartPolicy()}, 1.0).look()
