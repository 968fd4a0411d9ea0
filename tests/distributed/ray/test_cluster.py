"""A distributed run on Ray itself: two nodes on this machine, which share no folder, and programs that are killed.

python -m pytest tests/distributed/ray/test_cluster.py -m slow -n 0
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from envolve.distributed.files.run_folder import DONE, REPLAY, RunSettings
from envolve.distributed.memory.replay_log import ReplayLog
from envolve.distributed.programs.learner import CHECKPOINT
from envolve.distributed.ray.keeper import COPY
from envolve.distributed.ray.programs import programs_of
from envolve.distributed.ray.run import Run
from envolve.outer.ray import actors
from envolve.outer.ray.address import installed
from envolve.outer.ray.cluster import connected
from tests.distributed import toy
from tests.distributed.programs.test_faults import PARAMS, complete, prepare
from tests.distributed.toy import results, small
from tests.outer.ray import local
from tests.outer.small import ROOT, default_sigint

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not installed(), reason="no ray: pip install 'envolve[ray]'")]

ITERATIONS = 60


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    toy.Run(small(num_iter=ITERATIONS), folder, 2).finish()
    return results(folder)


@pytest.fixture(scope="module")
def cluster():
    with local.cluster(2, 2) as made, connected(made.address):
        yield made


class Killer:
    """Kills programs one after the other, each once the learner has made a checkpoint since."""

    def __init__(self, run, folder, names, seed=0):
        self.run, self.folder, self.left, self.killed = run, folder, list(names), []
        self.seen, self.next, self.random = 0.0, 0.0, random.Random(seed)

    def pid(self, name):
        if name == "replay":
            return actors.call(self.run.hub, "hello")
        path = self.folder / "logs" / f"{name}.log"
        found = re.findall(r"pid (\d+) on", path.read_text()) if path.exists() else []
        return int(found[-1]) if found and int(found[-1]) not in self.killed else None

    def __call__(self):
        path = self.folder / CHECKPOINT
        now = path.stat().st_mtime if path.exists() else 0.0
        if self.left and now > self.seen and time.monotonic() > self.next and (pid := self.pid(self.left[0])):
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)
            self.left.pop(0)
            self.seen, self.next = time.time(), time.monotonic() + self.random.uniform(0, 2)


def go(folder, settings, victims=(), extra=None, **values):
    prepare(folder, settings, 0.02, **values)
    run = Run(settings, folder, programs_of(settings.num_collectors))
    killer = Killer(run, folder, victims)

    def watch():
        killer()
        if extra is not None:
            extra(run)

    assert run.to_its_end(watch) == ""
    assert not killer.left, "the run was over before"
    return killer


def test_learner_hub_and_evaluator_are_killed_and_the_bytes_stay(cluster, tmp_path, expected):
    victims = ["learner", "replay", "evaluator", "replay", "learner"]
    go(tmp_path / "run", RunSettings(3, 2), victims, num_iter=ITERATIONS)
    assert results(tmp_path / "run") == expected
    assert (tmp_path / "run/session").read_text() == "2\n"


def test_a_node_is_lost_and_its_programs_go_on_elsewhere(cluster, tmp_path, monkeypatch):
    """Which loses a collector or more, and with them episodes; what was acknowledged is in the log. The nodes that are
    left have fewer CPUs than programs."""
    monkeypatch.setattr("envolve.distributed.ray.run.LOST_SECONDS", 20.0)
    node, lost = local.add(cluster, 4), []

    def lose(run):
        if not lost and (tmp_path / "run" / CHECKPOINT).exists():
            cluster.remove_node(node, allow_graceful=False)
            lost.append(node)

    go(tmp_path / "run", RunSettings(3, 4), extra=lose, num_iter=ITERATIONS)
    assert lost
    complete(tmp_path / "run", ITERATIONS)
    versions = Counter(chunk.version for chunk in ReplayLog(tmp_path / "run" / REPLAY, 1, 14, 1).read())
    newest = [versions[v] for v in range(ITERATIONS - 2, ITERATIONS)]
    assert newest == [4, 4], "in lockstep each version has a chunk of every collector"


@pytest.mark.parametrize("mode", ["lockstep", "async"])
def test_the_node_of_the_hub_is_lost_and_the_hub_goes_on_elsewhere(cluster, tmp_path, monkeypatch, expected, mode):
    """With its disk. No program is lost, so that in lockstep the bytes stay. In async nothing is dropped from the log:
    each chunk that was acknowledged is in that of the next hub, once."""
    node, found, acknowledged = local.add(cluster, 0), set(), []
    monkeypatch.setattr(actors, "elsewhere", lambda _: first(node.node_id))

    def lose(run):
        if not acknowledged and (tmp_path / "run" / CHECKPOINT).exists():
            assert actors.call(run.hub, "node") == node.node_id
            acknowledged.extend(tickets(tmp_path / "run"))
            cluster.remove_node(node, allow_graceful=False)
        if acknowledged:  # its process may live for a moment longer
            found.add(actors.call(run.hub, "node"))

    more = {"n_episodes_in_buffer": 10_000} if mode == "async" else {}
    go(tmp_path / "run", RunSettings(3, 2, mode), extra=lose, num_iter=ITERATIONS, **more)
    assert found - {node.node_id}, "it has been on another node"
    assert (tmp_path / "run/session").read_text() == "0\n", "the learner went on"
    assert not list(Path(tempfile.gettempdir()).glob((tmp_path / "run" / COPY).read_text().strip()))
    if mode == "lockstep":
        assert results(tmp_path / "run") == expected
    else:
        kept = tickets(tmp_path / "run")
        assert len(kept) == len(set(kept)) > len(acknowledged) > 0 and set(acknowledged) <= set(kept)


def first(node):
    """As ``elsewhere``: any node if this one is gone."""
    return {"label_selector": {actors.NODE_LABEL: node}, "fallback_strategy": [{"label_selector": {}}]}


def test_the_hub_is_not_on_the_node_of_the_command(cluster, tmp_path):
    seen = []
    go(tmp_path / "run", RunSettings(3, 2), extra=lambda run: seen.append(actors.call(run.hub, "node")), num_iter=6)
    assert set(seen) <= set(actors.others(actors.node_here())) and len(actors.others("")) == 3


def tickets(folder):
    """Workers and tickets of the chunks in the log, which stays as it is."""
    copy = Path(tempfile.mkdtemp(dir=folder.parent)) / REPLAY
    shutil.copytree(folder / REPLAY, copy)
    return [(chunk.worker, chunk.ticket) for chunk in ReplayLog(copy, 1, 14, 1).read()]


@pytest.mark.parametrize("mode", ["async", "lockstep"])
def test_every_program_is_killed_and_the_run_finishes(cluster, tmp_path, mode):
    names = ["collector_0", "learner", "collector_1", "replay", "evaluator", "collector_0"]
    go(tmp_path / "run", RunSettings(3, 2, mode), names, num_iter=200)
    complete(tmp_path / "run", 200)
    versions = Counter(chunk.version for chunk in ReplayLog(tmp_path / "run" / REPLAY, 1, 14, 1).read())
    assert versions and (mode == "async" or set(versions.values()) == {2})


# ------------------------------------------------------------------------------------------------- whole commands


def command(tmp_path, *words, ray=False, **options):
    """ray: with the variables of the tests' own cluster."""
    (tmp_path / "p.py").write_text(PARAMS + "    hidden = (8, 8)\n    n_episodes_in_buffer = 8\n")
    (tmp_path / "c.json").write_text('{"pause": 0.01}')
    environ = local.environ_of(tmp_path) | (local.ENVIRON if ray else {})
    base = ["--params", tmp_path / "p.py", "--config", tmp_path / "c.json", "--collectors", 2]
    line = [sys.executable, "-m", "envolve", "distributed", *map(str, [*base, *words])]
    return subprocess.Popen(line, cwd=ROOT, env=environ, text=True, stdout=-1, stderr=-2, **options)


def test_the_command_is_stopped_and_goes_on_without_ray(tmp_path):
    here = command(tmp_path, "--quick", "--run-dir", tmp_path / "here")
    said, _ = here.communicate(timeout=200)
    assert here.returncode == 0, said
    out = tmp_path / "ray"
    run = command(tmp_path, "--quick", "--run-dir", out, "--workers-on", "ray", start_new_session=True,
                  preexec_fn=default_sigint)  # fmt: skip
    for line in run.stdout:
        if "iteration 2/4" in line:
            break
    began = time.monotonic()
    run.send_signal(signal.SIGTERM)
    said, _ = run.communicate(timeout=60)
    seconds = time.monotonic() - began
    assert seconds < 9, "4 s, twice that on a busy machine"
    assert run.returncode == 143 and "Traceback" not in said, said
    time.sleep(2)
    assert not local.ray_processes(tmp_path) and not (out / DONE).exists()
    again = command(tmp_path, "--quick", "--run-dir", out)
    said, _ = again.communicate(timeout=200)
    assert again.returncode == 0 and results(out) == results(tmp_path / "here"), said


def test_the_command_is_lost_with_its_folder_and_the_hubs_goes_on(cluster, tmp_path):
    here = command(tmp_path, "--quick", "--run-dir", tmp_path / "here")
    said, _ = here.communicate(timeout=200)
    assert here.returncode == 0, said
    out = tmp_path / "ray"
    run = command(tmp_path, "--quick", "--run-dir", out, "--workers-on", f"ray:{cluster.address}", ray=True)
    lines = []
    for line in run.stdout:
        lines.append(line)
        if "iteration 3/4" in line:
            break
    run.kill()
    run.wait()
    (second,) = re.findall(r"second copy of the run: \S+?:(/\S+)", "".join(lines))
    time.sleep(3)  # Ray ends what the command began
    shutil.rmtree(out)
    assert not (Path(second) / DONE).exists()
    again = command(tmp_path, "--quick", "--run-dir", second)
    said, _ = again.communicate(timeout=200)
    assert again.returncode == 0 and results(Path(second)) == results(tmp_path / "here"), said
    shutil.rmtree(second)


def test_no_cluster_at_the_address(tmp_path):
    run = command(tmp_path, "--quick", "--run-dir", tmp_path / "run", "--workers-on", "ray:127.0.0.1:1")
    said, _ = run.communicate(timeout=100)
    assert run.returncode == 1 and "no Ray cluster at 127.0.0.1:1: Connection refused" in said, said
    assert "Traceback" not in said and Path(tmp_path / "p.py").exists()
