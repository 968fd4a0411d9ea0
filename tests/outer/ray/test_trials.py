"""Trials on Ray without Ray: NES masters that share no folder, and what a killed one leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from envolve.outer.hpo.nes_master import Broken
from envolve.outer.hpo.optimise import Optimiser
from envolve.outer.ray import nes_master
from envolve.outer.ray.evaluator import setup
from envolve.outer.ray.events import NodeUnfit
from envolve.outer.ray.nes_master import RayNESMaster, sees, trial_evaluation
from envolve.outer.ray.trials import NEVER_LATE, TrialPool, sizes
from tests.outer.hpo.small import study
from tests.outer.hpo.test_optimise import Notes
from tests.outer.ray.fake import MINE, FakeCluster
from tests.outer.small import ROOT
from tests.outer.test_run import Direct

FEW = {"stop": {"trials": 7}, "budget": {"unit": "generations", "least": 1, "most": 3, "eta": 3}}


class Masters(FakeCluster):
    """A master per slot. Each node has a folder of its own; ``shared``: of all."""

    def __init__(self, slots, s, folder, shared=None, **options):
        super().__init__(slots, **options)
        self.study, self.folder, self.shared = s, folder, shared

    def begin(self, worker, node):
        runs = self.shared or self.folder / node
        self.evaluate = trial_evaluation(self.study, runs, Direct(), self.shared is not None)
        super().begin(worker, node)


def search(s, run_dir, cluster):
    """-> the log without times, and the files of the runs."""
    run_dir.mkdir(parents=True, exist_ok=True)
    pool = TrialPool(
        cluster, "run", MINE, runs=run_dir / "runs", clock=lambda: cluster.now, patience=NEVER_LATE, count=3
    )
    Optimiser(s, run_dir, pool).execute(Notes())
    assert not pool._letters._packed and not pool._sent, "nothing is kept of trials that have ended"
    log = [json.loads(line) for line in (run_dir / "results.json").read_text().splitlines()]
    kept = ("model.pt", "scores.csv")
    files = {str(p.relative_to(run_dir)): p.read_bytes() for p in run_dir.rglob("*") if p.name in kept}
    return [line[:2] + line[3:] for line in log], (run_dir / "configs.json").read_bytes(), files


def test_nodes_without_a_common_folder_give_the_bytes_of_a_common_one(tmp_path):
    s = study(tmp_path, **FEW)
    (tmp_path / "one").mkdir()
    expected = search(s, tmp_path / "one", Masters({"a": 1}, s, tmp_path, shared=tmp_path / "one/runs"))
    known = [tuple(config_id) for config_id, *_ in expected[0]]
    assert len(known) == 7 > len(set(known)), "one was promoted"
    for slots in ({"a": 1}, {"a": 1, "b": 2}):
        run_dir = tmp_path / f"run{len(slots)}"
        assert search(s, run_dir, Masters(slots, s, tmp_path / f"nodes{len(slots)}")) == expected


def test_a_master_and_a_node_that_die(tmp_path):
    """Their trials begin again elsewhere, from what the configuration was promoted from."""
    s = study(tmp_path, **FEW)
    expected = search(s, tmp_path / "one", Masters({"a": 1}, s, tmp_path / "nodes1"))

    def script(cluster, worker, token, data):
        if len(cluster.sent) == 2:
            cluster.die_once_begun(worker)
            return True
        if len(cluster.sent) == 4:
            cluster.kill_node(cluster.place[worker])
            return True
        return False

    cluster = Masters({"a": 1, "b": 1, "c": 1}, s, tmp_path / "nodes2", script=script)
    assert search(s, tmp_path / "two", cluster) == expected
    assert len(cluster.slots) == 2 and len(cluster.sent) > 5


def test_a_damaged_answer_is_a_failed_trial(tmp_path):
    s = study(tmp_path, **{**FEW, "stop": {"trials": 1}})

    class Liar(Masters):
        def begin(self, worker, node):
            super().begin(worker, node)
            honest = self.objects[worker]._evaluation.function

            def lie(*args):
                return {**honest(*args), nes_master.FILES: [[1, 2, 3]]}

            self.objects[worker]._evaluation.function = lie

    (line,), _, files = search(s, tmp_path / "run", Liar({"a": 1}, s, tmp_path / "nodes"))
    assert "its files cannot be kept" in line[3] and not files


def test_a_full_disk_is_the_nodes_fault(tmp_path, monkeypatch):
    """The node gets no more; the trial goes to another, and without another the search ends in one line."""
    s = study(tmp_path, **FEW)
    monkeypatch.setattr(nes_master, "write_folder", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    evaluate = trial_evaluation(s, tmp_path, Direct(), False)
    with pytest.raises(Broken, match="No space left"):
        evaluate({"config_id": [0, 0, 1], nes_master.FILES: ""}, None, None, "trial", 1)
    master = RayNESMaster(setup("run", {}))
    master._evaluation = lambda *_: (_ for _ in ()).throw(Broken("no room"))
    monkeypatch.setattr("envolve.outer.ray.evaluator.work_of", lambda *_: None)
    with pytest.raises(NodeUnfit, match="no room"):
        master.evaluate(b"")


KILLED = """
import os, signal, sys, tempfile
sys.path.insert(0, sys.argv[2])
tempfile.tempdir = sys.argv[1]
from envolve.outer.ray.own_folder import own_folder
with own_folder() as folder:
    (folder / "left").write_text("")
    assert os.listdir(sys.argv[1]) == [folder.name]
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_killed_master_is_removed(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(ROOT)], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    until = time.monotonic() + 30
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.1)
    assert not list(tmp_path.iterdir())


def test_a_node_sees_the_folder_of_the_search_only_if_the_mark_is_there(tmp_path):
    assert not sees(tmp_path, "a" * 32)
    (tmp_path / nes_master.MARK).write_text("a" * 32)
    assert sees(tmp_path, "a" * 32) and not sees(tmp_path, "b" * 32)


def test_how_many_masters_and_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    s = study(tmp_path)  # three trials at once
    assert sizes(s, "ray", None, None) == (3, 2)
    assert sizes(s, "ray", None, 4) == (2, 4) and sizes(s, "ray", 2, None) == (2, 4)
    assert sizes(s, "ray:host:1", None, None) == (3, 1) and sizes(s, "ray:host:1", 5, 2) == (5, 2)
    assert sizes(s, "ray", None, 16) == (1, 16)
