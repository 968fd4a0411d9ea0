"""Disks that fill up, folders that become read-only or vanish, processes that are stopped for a while: for real."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.supervisor import ENV, Supervisor
from tests.faults.test_kills import undisturbed
from tests.outer.small import CLIFF, GRIDWORLD_FILE, ROOT

pytestmark = pytest.mark.slow
OVERRIDES = ("agents.gtn.max_iterations=120", "agents.ql.train_episodes=200", "agents.gtn.num_workers=16")


def mounted(folder: Path, options: str) -> bool:
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True)
    return done.returncode == 0


@contextlib.contextmanager
def disk(folder: Path, size: str = "2m"):
    """A small disk at ``folder``. Needs root."""
    folder.mkdir(parents=True)
    if not mounted(folder, f"size={size}"):
        pytest.skip("mounting a small disk needs root (and a container that allows it)")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", "none", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Takes all that is left."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
        while f.write(bytes(4096)):
            pass
    return filler


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return undisturbed(tmp_path_factory.mktemp("reference") / "run", OVERRIDES)


@pytest.fixture
def started(tmp_path):
    """A run with two workers of their own, in generation 5 or later."""
    supervisor = Supervisor(tmp_path, GRIDWORLD_FILE, (*CLIFF, *OVERRIDES), workers=2, seed=0)
    yield supervisor
    supervisor.close()


def reach(supervisor, generation):
    supervisor.look_after()
    wait_until(lambda: re.search(rf"^generation +{generation}/", supervisor.log(), re.MULTILINE) is not None)


def wait_until(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def complaint(supervisor) -> str:
    """What the master said when it gave up, in one line, and that the run can go on."""
    assert supervisor.master.wait(60) == 1, supervisor.log()
    lines = [x for x in supervisor.log().splitlines() if x]
    assert lines[-1].startswith("finished generations are kept; continue with: python3 GTN_master.py --resume ")
    assert "Traceback" not in supervisor.log()
    supervisor.master = None
    return lines[-2]


def to_the_end(supervisor):
    end = time.monotonic() + 240
    while not supervisor.look_after():
        assert time.monotonic() < end, supervisor.log()
        time.sleep(0.05)
    folder = supervisor.run_dir()
    assert folder is not None and "resumed at generation" in supervisor.log()
    return (folder / "model.pt").read_bytes(), (folder / "scores.csv").read_bytes()


@pytest.mark.parametrize("how", ["full", "read-only"])
@pytest.mark.parametrize("where", ["sync", "results"])
def test_the_disk_cannot_be_written(started, reference, where, how):
    """Told which file, why, and what helps; put right, the same workers and another master go on."""
    folder = started.cwd / where
    with disk(folder):
        reach(started, 5)
        if (where, how) == ("results", "read-only"):  # the kernel refuses that while the master has files open there
            started.master.kill()
            started.master.wait()
        filler = fill(folder) if how == "full" else remount(folder, "ro")
        if started.master.poll() is not None:
            started.start_master()
        text = complaint(started)
        assert str(folder) in text or f"{where}/" in text, text
        assert ("No space left on device" if how == "full" else "Read-only file system") in text, text
        assert ("ree some space" if how == "full" else "choose another") in text, text
        assert re.search(r"scores\.csv|checkpoint\.pt|events|\.pt|model\.pt", text), text
        if filler is not None:
            filler.unlink()
        else:
            remount(folder, "rw")
        assert to_the_end(started) == reference
        assert "Traceback" not in (started.cwd / "workers.log").read_text()


def test_the_sync_folder_is_deleted(started, reference):
    """It is made anew; nobody ends."""
    reach(started, 5)
    for generation in (10, 15, 20):
        shutil.rmtree(started.cwd / "sync", ignore_errors=True)
        reach(started, generation)
    assert started.starts == {"master": 1, "worker": 2}
    wait_until(lambda: started.look_after())
    folder = started.run_dir()
    assert ((folder / "model.pt").read_bytes(), (folder / "scores.csv").read_bytes()) == reference


def test_the_run_folder_is_deleted(started):
    """Nothing is left to go on with; the message names the file that could not be written."""
    reach(started, 5)
    shutil.rmtree(started.run_dir())
    assert started.master.wait(60) == 1
    text = started.log().splitlines()[-1]
    assert "GTN_master.py: results/" in text and "No such file or directory" in text
    assert "go on with" not in started.log() and "Traceback" not in started.log()


def test_a_checkpoint_cut_short(started, reference):
    """Refused, untouched; with the whole file the run goes on."""
    reach(started, 5)
    os.kill(started.master.pid, signal.SIGKILL)
    started.master.wait()
    checkpoint = started.run_dir() / "checkpoint.pt"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: len(whole) // 2])
    started.start_master()
    assert started.master.wait(60) == 1 and checkpoint.read_bytes() == whole[: len(whole) // 2]
    assert "checkpoint.pt: damaged" in started.log().splitlines()[-1]
    checkpoint.write_bytes(whole)
    assert to_the_end(started) == reference


# -------------------------------------------------------------------------------- stopped and continued


def busy(supervisor, worker_id):
    text = supervisor.cwd / "sync" / f"0_{worker_id}_heartbeat"
    with contextlib.suppress(OSError):
        return re.search(r'"doing": "[0-9a-f]{64}"', text.read_text()) is not None


def stop_in_mid_chunk(supervisor, worker_id):
    """SIGSTOP while it has a chunk in hand."""
    process = supervisor.workers[worker_id]
    while True:
        wait_until(lambda: busy(supervisor, worker_id))
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        if busy(supervisor, worker_id):
            return process
        process.send_signal(signal.SIGCONT)


def generation_of(supervisor):
    found = re.findall(r"^generation +(\d+)/", supervisor.log(), re.MULTILINE)
    return int(found[-1]) if found else 0


def test_a_worker_stopped_and_continued(started, reference):
    """The other takes its chunk and the run goes on; awake again, its late answer is dropped and it works on."""
    reach(started, 5)
    stopped = stop_in_mid_chunk(started, 0)
    before = generation_of(started)
    wait_until(lambda: generation_of(started) > before + 5)
    double = started._python("double.log", ROOT / "GTN_worker.py", 0, 0, "--sync-dir", "sync")
    assert double.wait(60) == 1, "the one that is stopped is alive, so the id is taken"
    assert "worker 0 of BOHB-ID 0 is already running" in (started.cwd / "double.log").read_text()
    stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: started.look_after())
    assert started.starts == {"master": 1, "worker": 2}
    assert "also sent to worker" in started.log() and "given up" not in started.log()
    folder = started.run_dir()
    assert ((folder / "model.pt").read_bytes(), (folder / "scores.csv").read_bytes()) == reference


def test_a_master_stopped_and_continued(started, reference):
    """Longer than workers take to say that it is gone. Meanwhile nobody else can have its run or its place."""
    reach(started, 5)
    started.master.send_signal(signal.SIGSTOP)
    wait_until(lambda: "waits for a master" in (started.cwd / "workers.log").read_text().split("found")[-1])
    other = [sys.executable, ROOT / "GTN_master.py", "--resume", started.run_dir(), "--sync-dir", "sync"]
    done = subprocess.run(list(map(str, other)), cwd=started.cwd, env=ENV, capture_output=True, text=True)
    assert done.returncode == 1 and "another process is working on this run" in done.stderr
    other = [sys.executable, ROOT / "GTN_master.py", GRIDWORLD_FILE, "--sync-dir", "sync", "--results-dir", "other"]
    done = subprocess.run(list(map(str, other)), cwd=started.cwd, env=ENV, capture_output=True, text=True)
    assert done.returncode == 1 and "another master with BOHB-ID 0 is running" in done.stderr
    started.master.send_signal(signal.SIGCONT)
    wait_until(lambda: started.look_after())
    folder = started.run_dir()
    assert started.starts == {"master": 1, "worker": 2} and "Traceback" not in started.log()
    assert ((folder / "model.pt").read_bytes(), (folder / "scores.csv").read_bytes()) == reference


def test_a_stopped_worker_whose_place_was_taken(started, reference):
    """Of another machine, as far as anybody can tell: silent for three beats, its id is free. Awake again, it gives
    way, and what it had in hand does no harm."""
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("another process namespace needs root (and a container that allows it)")
    script = [sys.executable, str(ROOT / "GTN_worker.py"), "0", "7", "--sync-dir", "sync"]
    with open(started.cwd / "elsewhere.log", "ab") as output:
        elsewhere = subprocess.Popen([*command, *script], cwd=started.cwd, env=ENV, stdout=output, stderr=output)
    try:
        wait_until(lambda: "is ready" in (started.cwd / "elsewhere.log").read_text())
        reach(started, 5)
        (inner,) = Path(f"/proc/{elsewhere.pid}/task/{elsewhere.pid}/children").read_text().split()
        while True:
            wait_until(lambda: busy(started, 7))
            os.kill(int(inner), signal.SIGSTOP)
            time.sleep(0.05)
            if busy(started, 7):
                break
            os.kill(int(inner), signal.SIGCONT)
        started.start_worker(7)
        wait_until(lambda: "worker 7 of BOHB-ID 0 is ready" in (started.cwd / "workers.log").read_text())
        os.kill(int(inner), signal.SIGCONT)
        assert elsewhere.wait(30) == 1
        assert "has taken this slot" in (started.cwd / "elsewhere.log").read_text()
    finally:
        elsewhere.kill()
        elsewhere.wait()
    wait_until(lambda: started.look_after())
    folder = started.run_dir()
    assert ((folder / "model.pt").read_bytes(), (folder / "scores.csv").read_bytes()) == reference
