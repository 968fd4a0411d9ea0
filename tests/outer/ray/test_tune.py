"""``envolve tune`` on Ray itself: the results of the file exchange, through a killed NES master.

python -m pytest tests/outer/ray/test_tune.py -m slow -n 0
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from envolve.experiments import optimize_params
from envolve.outer.hpo.optimise import Optimiser
from envolve.outer.hpo.study import read_study
from envolve.outer.ray import trials
from envolve.outer.ray.address import installed
from envolve.outer.ray.cluster import connected
from tests.experiments.test_optimize_params import FEW, outcome
from tests.outer.hpo.small import write
from tests.outer.hpo.test_optimise import Notes
from tests.outer.ray import local
from tests.outer.small import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not installed(), reason="no ray: pip install 'envolve[ray]'")]


def runs(run_dir):
    """Bytes of the runs' files."""
    found = [p for p in (run_dir / "runs").rglob("*") if p.name in ("model.pt", "scores.csv")]
    return {str(p.relative_to(run_dir)): p.read_bytes() for p in found}


def tune(*words, mark=""):
    """mark: for ``local.ray_processes``."""
    environ = local.environ_of(mark)
    command = [sys.executable, "-m", "envolve", "tune", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=environ, text=True, capture_output=True, timeout=500)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def on_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    argv = [str(write(folder, **FEW)), "--workers", "1", "--run-dir", str(folder / "run")]
    assert optimize_params.main(argv) == 0
    return folder / "run"


def test_a_cluster_of_its_own(on_files, tmp_path):
    words = "--workers-on", "ray", "--masters", 1, "--run-dir", tmp_path / "run"
    code, out = tune(write(tmp_path, **FEW), *words, mark=tmp_path)
    assert code == 0, out
    assert outcome(tmp_path / "run") == outcome(on_files) and runs(tmp_path / "run") == runs(on_files)
    time.sleep(1)
    assert not local.ray_processes(tmp_path) and not (tmp_path / "run/ray_mark").exists()


@pytest.mark.parametrize("shared", [True, False])
def test_a_master_that_is_killed(on_files, tmp_path, monkeypatch, shared):
    """Two nodes, which see the folder of the search or do not."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    s = read_study(write(tmp_path, **FEW))
    if not shared:
        monkeypatch.setattr(trials, "write_atomic", lambda *_: None)  # no mark
    with local.cluster(1, 1) as made, connected(made.address):
        with trials.trial_pool(s, run_dir, f"ray:{made.address}", 2, 1) as pool:
            pids, welcome = {}, pool._staff.welcome

            def note(worker, said):
                pids[worker] = int(said["pid"])
                return welcome(worker, said)

            killed = []

            def kill_one():
                if pool.holders() and not killed:
                    killed.append(pids[pool.holders()[0][1]])
                    os.kill(killed[0], signal.SIGKILL)

            pool._staff.welcome, pool.on_wait = note, kill_one
            Optimiser(s, run_dir, pool).execute(Notes())
            assert killed and len(pids) >= 2
            optimize_params.write_report(run_dir, s, Optimiser(s, run_dir, pool).known)
    assert outcome(run_dir) == outcome(on_files)
    assert runs(run_dir) == runs(on_files)


def test_stopped_and_resumed_with_files(on_files, tmp_path):
    """Ctrl-C in the middle: no process is left, and another engine goes on."""
    path, run_dir, environ = write(tmp_path, **FEW), tmp_path / "run", local.environ_of(tmp_path)
    command = [sys.executable, "-m", "envolve", "tune", str(path), "--workers-on", "ray", "--run-dir", str(run_dir)]
    search = subprocess.Popen(command, cwd=ROOT, env=environ, text=True, stdout=-1, stderr=-2, start_new_session=True)
    deadline = time.monotonic() + 240
    while not list(run_dir.glob("runs/*/run_0/scores.csv")) and time.monotonic() < deadline:
        time.sleep(0.05)
    search.send_signal(signal.SIGTERM)
    out, _ = search.communicate(timeout=60)
    assert search.returncode == 143 and "--workers-on ray" in out and "Traceback" not in out, out
    time.sleep(2)
    assert not local.ray_processes(tmp_path)
    assert tune("--resume", run_dir, "--workers", 1)[0] == 0
    assert outcome(run_dir) == outcome(on_files) and runs(run_dir) == runs(on_files)
