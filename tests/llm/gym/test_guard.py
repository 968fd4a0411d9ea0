"""Nothing of a training outlives its master, however and whenever that dies, or writes beside a resumed run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envolve.llm.gym import train
from envolve.llm.gym.train import RunStopped
from envolve.llm.vetting.jail import locks as jail
from tests.llm.scripted_server import wait_until
from tests.test_layout import ROOT

# What a training may start: a child, and orphans in a session of their own, which hear of no signal to a group.
TRAINING = """
import os, signal, sys, time
from envolve.llm.gym.guard import guard
if len(sys.argv) > 2:
    while os.getppid() == int(sys.argv[1]):  # the master has died before anything was asked of the kernel
        time.sleep(0.01)
guard(int(sys.argv[1]))
if os.fork() and os.fork():
    open("trains", "w").close()
else:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() and os.fork():
        os._exit(0)
while True:
    with open("written", "a") as file:
        file.write(".")
    time.sleep(0.01)
"""
MASTER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "training.py", str(__import__("os").getpid()), *sys.argv[1:]],
                         start_new_session=True)
open("started", "w").close()
time.sleep(100)
"""


def alive(mark: str) -> list[int]:
    """Processes with this text in their environment; those that have only not been waited for do not count."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.fixture
def master(tmp_path):
    """Starts one -> its process. Afterwards nothing may be left of it."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "MARK": str(tmp_path)}
    (tmp_path / "training.py").write_text(TRAINING)
    begun: list[subprocess.Popen] = []

    def start(*words):
        begun.append(subprocess.Popen([sys.executable, "-c", MASTER, *words], cwd=tmp_path, env=environ))
        return begun[0]

    yield start
    left = alive(str(tmp_path))
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    begun[0].wait()
    assert not left


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["started", "trains", "written"])
def test_nothing_outlives_its_master(moment, signum, master, tmp_path) -> None:
    process = master()
    wait_until(lambda: (tmp_path / moment).exists(), 60)
    process.send_signal(signum)
    process.wait()
    wait_until(lambda: not alive(str(tmp_path)), 60)


def test_a_master_that_was_dead_before_anything_was_asked(master, tmp_path) -> None:
    """The parent-death signal never comes then; without another look nothing would ever end it."""
    process = master("late")
    wait_until(lambda: (tmp_path / "started").exists(), 60)
    process.kill()
    process.wait()
    wait_until(lambda: not alive(str(tmp_path)), 60)
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    "end, code", [("sys.exit(3)", 3), ("os.kill(os.getpid(), 6)", -6), ("os.kill(os.getpid(), 9)", -9)]
)
def test_the_guardian_ends_as_the_training_does(end, code, tmp_path) -> None:
    """And takes along what that has left."""
    text = f"import os, sys, time\nfrom envolve.llm.gym.guard import guard\nguard({os.getpid()})\n"
    text += f"if os.fork() == 0:\n    os.setsid()\n    time.sleep(100)\n{end}\n"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "MARK": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", text], env=environ).returncode == code
    assert not alive(str(tmp_path))


def test_a_training_waits_for_what_is_left_of_an_earlier_one(tmp_path, monkeypatch) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(train, "LINGER", 0.2)
        with pytest.raises(RunStopped, match="another training is still running there"):
            train._lock(tmp_path)
    os.close(train._lock(tmp_path))


REAL = """
import sys
from pathlib import Path
from tests.llm.gym.test_train import FAST, job
from tests.llm.gym.user import method
from envolve.llm.gym.train import run_jobs
more = ["total_timesteps=100000000", "eval.num_evals=1000000", "multithreaded=true", "num_envs=2"]
more = ["rl.training." + one for one in more]
folder = Path(sys.argv[1])
print([o.error for _, o in run_jobs([job(folder, method("return float(x[0]), {}"), *more)], 1, FAST)])
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(jail.missing()), reason="no jail here")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["lock", "job.json", "out", "log.txt", "out/evals.json"])
def test_no_real_training_outlives_its_master(moment, signum, tmp_path) -> None:
    """With environments in processes of their own, from before it is started until it trains."""
    pytest.importorskip("stable_baselines3")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", REAL, str(tmp_path)], env=environ)
    try:
        wait_until(lambda: process.poll() is not None or (tmp_path / "job" / moment).exists(), 300)
        assert process.poll() is None, "it has ended by itself"
    finally:
        process.send_signal(signum)
        process.wait()
    mark = f"MPLCONFIGDIR={tmp_path}"  # of the training and its environments
    wait_until(lambda: not alive(mark), 60)
    os.close(train._lock(tmp_path / "job"))  # a resumed run may write there
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    time.sleep(0.5)
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
