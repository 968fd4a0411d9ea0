from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envolve.distributed.programs.supervisor import DONE, FAILED, STOPPED, STUCK, WRONG, Role, Supervisor
from tests.outer.small import default_sigint

ROOT = Path(__file__).parents[3]
UNTIL = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)\n"
FOREVER = "import time\nwhile True: time.sleep(0.05)\n"
# counts its starts in a file, and does so much of its work that it is done after some time, over all its lives
COUNTS = """
import pathlib, sys, time
path, wanted = pathlib.Path(sys.argv[1]), int(sys.argv[2])
print("started", flush=True)
while True:
    done = int(path.read_text()) if path.exists() else 0
    if done >= wanted:
        sys.exit(0)
    time.sleep(0.02)
    path.with_suffix(".new").write_text(str(done + 1))
    path.with_suffix(".new").replace(path)
"""


def python(code: str, *args: object) -> list[str]:
    return [sys.executable, "-S", "-c", code, *map(str, args)]


def supervisor(roles: list[Role], log_dir: Path, **options: Any) -> Supervisor:
    return Supervisor(roles, log_dir, **{"first_delay": 0.01, "quick_seconds": 0.0, "stop_seconds": 5.0, **options})


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def eventually(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def test_done_ends_the_loop_and_the_others(tmp_path: Path) -> None:
    count = tmp_path / "count"
    roles = [Role("learner", python(COUNTS, count, 5), decides=True), Role("collector_0", python(FOREVER))]
    s, seen = supervisor(roles, tmp_path / "logs"), {}
    assert s.run(lambda: seen.update(s.pids())) == DONE
    assert count.read_text() == "5" and "collector_0" in seen and not any(map(alive, seen.values()))
    assert (tmp_path / "logs" / "learner.log").read_text() == "started\n"


def test_kill_9_of_each_role_again_and_again_restarts_that_role_alone(tmp_path: Path) -> None:
    enough, kills = tmp_path / "enough", 6
    roles = [
        Role("learner", python(UNTIL, enough), decides=True),  # on a slow machine, too, it outlives the kills
        Role("replay", python(FOREVER)),
        Role("collector_0", python(FOREVER)),
    ]
    s = supervisor(roles, tmp_path)
    left = [role.name for role in roles] * kills
    last: dict[str, int] = {}
    replaced: list[bool] = []

    def kill_one() -> None:
        pids = s.pids()
        if left and len(pids) == len(roles):
            victim = left.pop()
            if last:
                killed_before = left_before[0]
                replaced.append({n for n in pids if pids[n] != last[n]} == {killed_before})
            left_before[:] = [victim]
            last.update(pids)
            os.kill(pids[victim], signal.SIGKILL)
        elif len(pids) == len(roles):
            enough.touch()

    left_before: list[str] = []
    assert s.run(kill_one) == DONE
    assert not left and all(replaced) and len(replaced) == 3 * kills - 1
    assert s.deaths() == {role.name: kills for role in roles}


def test_a_role_that_cannot_start_ends_the_run_with_its_last_words(tmp_path: Path, caplog: Any) -> None:
    broken = python("print('no such thing', flush=True); raise SystemExit(1)")
    s = supervisor(
        [Role("learner", python(FOREVER), decides=True), Role("replay", broken)],
        tmp_path,
        quick_seconds=9.0,
        first_delay=1e-4,
    )
    assert s.run() == FAILED
    assert s.deaths() == {"learner": 0, "replay": 10} and "no such thing" in caplog.text


def test_delays_double_while_deaths_are_quick(tmp_path: Path, caplog: Any) -> None:
    s = supervisor(
        [Role("learner", python("raise SystemExit(1)"), decides=True)], tmp_path, quick_seconds=9.0, first_delay=1e-3
    )
    s.run()
    delays = [r.args[2] for r in caplog.records if "starting it again" in r.msg]  # type: ignore[index]
    assert delays == pytest.approx([1e-3 * 2**i for i in range(1, 10)])


@pytest.mark.parametrize("code, run, words", [(WRONG, WRONG, "do not go together"), (STUCK, FAILED, "would not help")])
def test_what_would_not_help_is_not_tried_again(tmp_path: Path, caplog: Any, code: int, run: int, words: str) -> None:
    roles = [Role("learner", python(FOREVER), decides=True), Role("collector_0", python(f"raise SystemExit({code})"))]
    s = supervisor(roles, tmp_path)
    assert s.run() == run and s.deaths()["collector_0"] == 0 and words in caplog.text


def test_a_role_that_is_done_early_is_left_alone(tmp_path: Path) -> None:
    roles = [Role("learner", python(COUNTS, tmp_path / "c", 20), decides=True), Role("evaluator", python("pass"))]
    s = supervisor(roles, tmp_path)
    assert s.run() == DONE and s.deaths() == {"learner": 0, "evaluator": 0}


def test_variables_and_cpus_of_a_role(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    code = "import os; print(os.environ['SLURM_PROCID'], sorted(os.sched_getaffinity(0)), 'PATH' in os.environ)"
    s = supervisor([Role("learner", python(code), {"SLURM_PROCID": "3"}, {cpu}, decides=True)], tmp_path)
    assert s.run() == DONE and (tmp_path / "learner.log").read_text() == f"3 [{cpu}] True\n"


NOTES = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def end(*_):
    (folder / "checkpoint").write_text("all of it")
    sys.exit(130)
signal.signal(signal.SIGTERM, end)
(folder / "learner_ready").write_text(str(__import__("os").getpid()))
while True: time.sleep(0.05)
"""
DEAF = """
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
(folder / "pids.new").write_text(f"{os.getpid()} {child.pid}")
(folder / "pids.new").replace(folder / "deaf_ready")
while True: time.sleep(0.05)
"""
# a supervisor in a process of its own: one role that notes SIGTERM, one that ignores it and has a child
SUPERVISOR = f"""
import logging, signal, sys
from pathlib import Path
from envolve.distributed.programs.supervisor import Role, Supervisor
logging.basicConfig()
folder = Path(sys.argv[1])
signal.signal(signal.SIGTERM, signal.default_int_handler)
begin = [sys.executable, "-S", "-c"]
roles = [
    Role("learner", [*begin, {NOTES!r}, str(folder)], decides=True),
    Role("deaf", [*begin, {DEAF!r}, str(folder)]),
]
sys.exit(Supervisor(roles, folder, stop_seconds=1).run())
"""


@pytest.fixture
def running(tmp_path: Path) -> Any:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path)]  # what is started in the background ignores SIGINT
    process = subprocess.Popen(command, env=env, cwd=ROOT, preexec_fn=default_sigint)
    ready = [tmp_path / "learner_ready", tmp_path / "deaf_ready"]
    assert eventually(lambda: all(p.exists() and p.read_text() for p in ready), 60)
    yield process, tmp_path, [int(n) for p in ready for n in p.read_text().split()]
    process.kill()
    process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_everybody_and_let_the_learner_write(running: Any, number: int) -> None:
    process, folder, pids = running
    process.send_signal(number)
    assert process.wait(20) == STOPPED
    assert (folder / "checkpoint").read_text() == "all of it"
    assert eventually(lambda: not any(map(alive, pids)))  # the deaf one and its child, too


def test_a_supervisor_that_is_killed_leaves_nobody_who_hears(running: Any) -> None:
    process, folder, pids = running
    process.kill()
    assert eventually(lambda: not alive(pids[0])) and (folder / "checkpoint").exists()
    for pid in pids[1:]:
        os.kill(pid, signal.SIGKILL)


def test_names_and_who_decides_are_checked(tmp_path: Path) -> None:
    for roles in ([Role("a", []), Role("a", [], decides=True)], [Role("a", [])]):
        with pytest.raises(ValueError, match="expected names of their own, and one that decides"):
            Supervisor(roles, tmp_path)
