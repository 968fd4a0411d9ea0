"""GTN_worker.py as real processes on a real folder: starting, dying, and being told to stop."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from envolve.core import plugins
from envolve.core.supervisor import RestartPolicy
from envolve.experiments import worker as GTN_worker
from envolve.outer.exchange.dispatch import Dispatcher
from envolve.outer.exchange.local_workers import LocalWorkers
from envolve.outer.exchange.machine import ExchangeError, Files
from tests.outer.virtual import chunks_of

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).resolve().parent / "fake_worker.py"
FAST = ("--heartbeat", "0.2")


def start(sync_dir, *args):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, args), "--sync-dir", str(sync_dir), *FAST],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def words_of(process):
    """The lines of its output, as they come."""
    lines = []

    def read():
        for line in process.stdout:
            lines.append(line)

    threading.Thread(target=read, daemon=True).start()
    return lines


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def with_mode(chunks, mode, **config):
    return [replace(c, mode=mode, config={**c.config, **config}) for c in chunks]


def check(results, chunks):
    for result, chunk in zip(results, chunks):
        assert result.error == "" and torch.equal(result.values["score"], chunk.worlds.sum(1).double())


def refused(words):
    """A worker in this process, which ends at once."""
    old = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        return GTN_worker.main(words, evaluate=lambda *a: {})
    finally:
        for signum, handler in old.items():
            signal.signal(signum, handler)


def test_a_workers_life(tmp_path, capsys, monkeypatch, warm):
    """Waits for a master, refuses a double, works, survives a master, is stopped, and is told to quit."""
    worker = start(tmp_path, 0, 3)
    other = None
    try:
        wait_for(lambda: (tmp_path / "0_3_heartbeat").exists())
        monkeypatch.setattr(plugins, "_folders", [])
        assert refused(["0", "3", "--sync-dir", str(tmp_path), *FAST, "--plugins", "/my runs"]) == 1
        said = "".join(capsys.readouterr())
        assert "worker 3 of BOHB-ID 0 is already running (pid" in said
        assert f"0 4 --sync-dir {tmp_path} --plugins '/my runs', or stop that one first" in said
        assert worker.poll() is None
        wait_for(lambda: '"doing": ""' in (tmp_path / "0_3_heartbeat").read_text())
        with Dispatcher(str(tmp_path), 0, "first", interval=0.2) as master:
            other = start(tmp_path, 7, 0)  # the wrong BOHB-ID: it says so, and its master is not here
            chunks = chunks_of(4)
            check(master.evaluate(chunks), chunks)
            wait_for(
                lambda: (
                    (tmp_path / "7_0_heartbeat").exists() and '"doing": ""' in (tmp_path / "7_0_heartbeat").read_text()
                )
            )
            said = words_of(other)
            wait_for(lambda: re.search(r"waits for a master with BOHB-ID 7 .*other BOHB-IDs there: 0", "".join(said)))
            other.send_signal(signal.SIGTERM)
            assert other.wait(60) == 143 and not (tmp_path / "7_0_heartbeat").exists()
        assert worker.poll() is None, "a worker waits for the next master"
        master = Dispatcher(str(tmp_path), 0, "second", interval=0.2)
        chunks = chunks_of(2, run_id="second")
        check(master.evaluate(chunks), chunks)
        master.close(quit_workers=True)
        assert worker.wait(60) == 0
        output = worker.stdout.read()
        assert "waits for a master with BOHB-ID 0" in output and "told to quit by the master of run second" in output
        assert not [n for n in os.listdir(tmp_path) if n.startswith("0_")]
    finally:
        for process in (worker, other):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def test_killed_worker_is_started_anew_and_its_chunk_comes_back(tmp_path, warm):
    marker = tmp_path / "marker"
    workers = LocalWorkers(1, tmp_path / "sync", 0, tmp_path / "logs", script=SCRIPT, extra_args=FAST)
    with Dispatcher(str(tmp_path / "sync"), 0, "run", interval=0.2, on_wait=workers.poll) as master, workers:
        (pid,) = workers.pids()
        chunks = with_mode(chunks_of(3), "die once", marker=str(marker))
        check(master.evaluate(chunks), chunks)
        assert marker.exists() and workers.pids() != [pid]
        assert (tmp_path / "logs" / "worker_0.log").read_text().count("is ready") == 2
        # nobody waits for a chunk of ten minutes: closing stops even a busy worker
        with pytest.raises(KeyboardInterrupt):
            master.on_wait = lambda: _interrupt_when(tmp_path / "sync" / "0_0_heartbeat")
            master.evaluate(with_mode(chunks_of(1), "slow"))
        begin = time.monotonic()
        workers.close()
        assert workers.pids() == [] and time.monotonic() - begin < 300
    assert os.listdir(tmp_path / "sync") == []


def _interrupt_when(heartbeat):
    if re.search(r'"doing": "[0-9a-f]{64}"', heartbeat.read_text()):
        raise KeyboardInterrupt


def test_local_worker_ends_when_its_master_is_gone(tmp_path, warm):
    parent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    worker = start(tmp_path, 0, 0, "--parent-pid", parent.pid)
    try:
        wait_for(lambda: (tmp_path / "0_0_heartbeat").exists())
        parent.kill()
        parent.wait()
        assert worker.wait(60) == 0
        assert not (tmp_path / "0_0_heartbeat").exists()
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()


def test_local_workers_that_cannot_start_are_an_error_with_their_last_words(tmp_path, monkeypatch):
    script = tmp_path / "broken.py"
    script.write_text("import sys; sys.exit('no module named nonsense')")
    monkeypatch.setattr("envolve.outer.exchange.local_workers.POLICY", RestartPolicy(quick_deaths=2))
    with LocalWorkers(1, tmp_path, 0, tmp_path / "logs", script=script) as workers:
        with pytest.raises(ExchangeError, match="no module named nonsense"):
            wait_for(lambda: workers.poll())
    with pytest.raises(ExchangeError, match="cannot start worker 0"):
        LocalWorkers(1, tmp_path, 0, script, script=script).start()


@pytest.mark.parametrize("args", [[], ["0"], ["-1", "0"], ["0", "x"], ["0", "1.5"], ["0", "0", "--heartbeat", "0"]])
def test_wrong_arguments(args, capsys):
    with pytest.raises(SystemExit) as e:
        GTN_worker.main(args)
    assert e.value.code == 2 and "usage" in capsys.readouterr().err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as e:
        GTN_worker.main(["--help"])
    text = capsys.readouterr().out
    assert e.value.code == 0 and "envolve worker 0 1 &" in text and "--sync-dir" in text and "parent" not in text


def test_unusable_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert refused(["0", "0", "--sync-dir", str(tmp_path / "file")]) == 1
    err = capsys.readouterr().err
    assert str(tmp_path / "file") in err and "is a file; choose a folder with --sync-dir" in err
    assert "Free some space" not in err


@pytest.mark.parametrize(
    "code, words",
    [
        (errno.ENOSPC, "Free some space or make the folder writable"),
        (errno.EACCES, "Free some space or make the folder writable"),
        (errno.ENOTDIR, "is a file; choose a folder with --sync-dir"),
        (errno.EISDIR, "remove it: FOLDER/a{b}"),
        (errno.EIO, "Choose another folder with --sync-dir"),
    ],
)
def test_what_helps_depends_on_what_is_wrong(tmp_path, monkeypatch, code, words):
    def fails(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    files = Files(str(tmp_path))
    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(ExchangeError) as caught:
        files.write("a{b}", b"")
    monkeypatch.undo()
    assert words.replace("FOLDER", str(tmp_path)) in str(caught.value)
    assert ("Free some space" in str(caught.value)) == (code in (errno.ENOSPC, errno.EACCES))
