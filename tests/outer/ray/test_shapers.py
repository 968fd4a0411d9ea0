"""``envolve shape`` on Ray, with a stand-in for Ray and, slow, on clusters of this machine.

python -m pytest tests/outer/ray/test_shapers.py -m slow -n 0
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from rich.console import Console

from envolve.envs.sim.simulator import SimulatorError
from envolve.experiments import eval_shapers
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.exchange.messages import Chunk
from envolve.outer.exchange.pairs import pack
from envolve.outer.ray import shapers
from envolve.outer.ray.address import installed
from envolve.outer.ray.cluster import connected
from envolve.outer.ray.codec import work
from envolve.outer.ray.evaluator import setup
from envolve.outer.ray.events import NodeUnfit
from envolve.outer.ray.shapers import RayShapers, slice_evaluation
from envolve.outer.shapers.apart import ApartRun
from envolve.outer.shapers.arguments import Args
from envolve.outer.shapers.run import ShaperRun
from envolve.outer.shapers.slices import content_of, files_of
from tests.outer.ray import fake, local
from tests.outer.shapers.test_slices import folder, outcome, plan_of  # noqa: F401
from tests.outer.small import ROOT, default_sigint


class Nodes(fake.FakeCluster):
    """Workers in folders of their own."""

    def __init__(self, slots, plan, where, **options):
        super().__init__(slots, **options)
        self.held, self.where = files_of(plan), where

    def begin(self, worker, node):
        own = self.where / f"worker_{worker}"
        own.mkdir(parents=True)
        self.evaluate = slice_evaluation(own, self.held)
        super().begin(worker, node)


def on(monkeypatch, cluster):
    """The pool of :class:`ApartRun` is one on this cluster."""

    @contextlib.contextmanager
    def pool(plan, files, workers_on, workers):
        with fake.pool(cluster) as made:
            yield made, sum(cluster.slots.values())

    monkeypatch.setattr(shapers, "slice_pool", pool)


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):  # noqa: F811
    return outcome(ShaperRun(plan_of(folder, tmp_path_factory.mktemp("whole"), seeds=1)))


def test_any_number_of_nodes_and_a_killed_worker_give_the_bytes_of_one_process(
    folder, tmp_path, monkeypatch, whole, caplog  # noqa: F811
):  # fmt: skip
    def script(cluster, worker, token, data):
        if len(cluster.sent) == 2:
            cluster.die(worker)
        return len(cluster.sent) == 2

    plan = plan_of(folder, tmp_path / "out", seeds=1)
    cluster = Nodes({"a": 1, "b": 1}, plan, tmp_path, script=script)
    on(monkeypatch, cluster)
    run = ApartRun(plan, "ray", None)
    assert outcome(run) == whole and run.plan.threads == 1 and run.complete
    assert len(cluster.objects) == 2 and len(cluster.sent) >= 5
    assert caplog.text.count("candidate raises is out") == 2, "the worker and the driver, here one process"


def test_interrupted_what_was_trained_is_kept(folder, tmp_path, monkeypatch, whole):  # noqa: F811
    plan = plan_of(folder, tmp_path / "out", seeds=1)

    def script(cluster, worker, token, data):
        if len(cluster.sent) == 2:
            raise KeyboardInterrupt
        return False

    on(monkeypatch, Nodes({"a": 1}, plan, tmp_path, script=script))
    run = ApartRun(plan, "ray", None)
    with pytest.raises(KeyboardInterrupt):
        run.execute(Console(quiet=True))
    ranking = run.write(None)
    content = json.loads((tmp_path / "out/candidates.json").read_text())
    known = {c["name"]: c for c in json.loads('{"candidates": [' + whole[0])["candidates"]}
    scored = [c for c in content["candidates"] if c["score"] is not None]
    assert not content["complete"] and 0 < len(scored) < 4 and run.best(ranking) is not None
    assert all(c["episode_scores"] == known[c["name"]]["episode_scores"] for c in scored)


def test_a_slice_that_raises_fails_its_candidates_and_all_of_them_the_ranking(
    folder, tmp_path, monkeypatch  # noqa: F811
):  # fmt: skip
    plan = plan_of(folder, tmp_path / "out", seeds=1)
    monkeypatch.setattr("envolve.outer.shapers.slices.make_envs", lambda *_: 1 / 0)
    on(monkeypatch, Nodes({"a": 1}, plan, tmp_path))
    with pytest.raises(SimulatorError, match="ZeroDivisionError"):
        ApartRun(plan, "ray", None).execute(Console(quiet=True))


def test_a_lost_cluster_leaves_what_was_trained(folder, tmp_path, monkeypatch, capsys):  # noqa: F811
    def script(cluster, worker, token, data):
        if len(cluster.sent) == 2:
            raise ExchangeError("the head is gone")
        return False

    plan = plan_of(folder, tmp_path / "out", seeds=1)
    on(monkeypatch, Nodes({"a": 1}, plan, tmp_path, script=script))
    args = Args(workers_on="ray", out=plan.out)
    assert eval_shapers.rank(args, plan, []) == 1
    assert "the head is gone" in (err := capsys.readouterr().err) and "what was trained by then is in" in err
    assert json.loads((plan.out / "candidates.json").read_text())["candidates"][0]["score"] is not None


def test_a_file_that_cannot_be_sent_is_one_line(folder, tmp_path, monkeypatch):  # noqa: F811
    plan = plan_of(folder, tmp_path / "out")
    monkeypatch.setattr("envolve.outer.shapers.slices.TEXT_BYTES", 10)
    with pytest.raises(ExchangeError, match=r"\.py: .*; workers on Ray would need it"):
        ApartRun(plan, "ray", None).execute(Console(quiet=True))


def test_a_node_without_the_kernels_gets_no_slice(folder, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("envolve.outer.shapers.slices.not_compiled", lambda: "no compiler")
    plan = plan_of(folder, tmp_path / "out")
    worker = RayShapers(setup("run", files_of(plan)))
    worker.hello()
    content = content_of(plan, files_of(plan))
    worker.learn("key", pack({"config": content}))
    chunk = Chunk("run", 1, 0, 0, "slice", content, torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
    with pytest.raises(NodeUnfit, match="kernels of shaped_ppo cannot be compiled: no compiler"):
        worker.evaluate(work(chunk, "key"))


# ------------------------------------------------------------------------------------------------------- Ray itself

needs_ray = pytest.mark.skipif(not installed(), reason="no ray: pip install 'envolve[ray]'")
SMALL = ["--task", "Cartpole", "--num-envs-per-shaper", "8", "--iterations", "2", "--set", "hidden_size=16"]


def shape(*words, **options):
    environ = local.environ_of(options.pop("mark", "")) | options.pop("env", {})
    command = [sys.executable, "-m", "envolve", "shape", *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, env=environ, text=True, stdout=-1, stderr=-2, **options)


@pytest.mark.slow
@needs_ray
def test_nodes_without_a_common_folder_and_a_killed_worker(folder, tmp_path, whole):  # noqa: F811
    plan = plan_of(folder, tmp_path / "out", seeds=1)
    killed, pids = [], {}
    with local.cluster(1, 1) as made, connected(made.address):
        taken = shapers.slice_pool

        @contextlib.contextmanager
        def watched(*args):
            with taken(*args) as (pool, room):
                welcome = pool._staff.welcome

                def note(worker, said):
                    pids[worker] = int(said["pid"])
                    return welcome(worker, said)

                pool._staff.welcome = note

                def killer():
                    while not pool.holders() or pool.holders()[0][1] not in pids:
                        time.sleep(0.01)
                    killed.append(pids[pool.holders()[0][1]])
                    os.kill(killed[0], signal.SIGKILL)

                threading.Thread(target=killer).start()
                yield pool, room

        shapers.slice_pool = watched
        try:
            assert outcome(ApartRun(plan, f"ray:{made.address}", None)) == whole
        finally:
            shapers.slice_pool = taken
    assert killed and len(pids) >= 2


@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize("learner", ["ppo", "sac"])
def test_a_cluster_of_its_own(folder, tmp_path, learner):  # noqa: F811
    own = ["--learner", "sac", "--set", "batch_size=16"] if learner == "sac" else SMALL[-2:]
    words = [*SMALL[:6], *own, "--shapers", folder, "--threads", 1]
    found = []
    for engine in ([], ["--workers-on", "ray", "--workers", 2]):
        out = tmp_path / f"out{len(found)}"
        run = shape(*words, *engine, "--run-dir", out, mark=tmp_path)
        said, _ = run.communicate(timeout=300)
        assert run.returncode == 0 and "Traceback" not in said, said
        ranking = json.loads((out / "candidates.json").read_text())["candidates"]
        found.append((json.dumps(ranking), (out / "best.pt").read_bytes()))
    assert found[0] == found[1] and not local.ray_processes(tmp_path)


@pytest.mark.slow
@needs_ray
def test_ctrl_c_writes_what_is_known(folder, tmp_path):  # noqa: F811
    words = [*SMALL[:4], "--iterations", 30, "--workers-on", "ray", "--workers", 1, "--candidates", "good", "wide"]
    out = tmp_path / "out"
    options = {"start_new_session": True, "preexec_fn": default_sigint, "mark": tmp_path}
    run = shape(*words, "--shapers", folder, "--run-dir", out, **options)
    for line in run.stdout:
        if line.startswith("agents "):
            break
    began = time.time()
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 130 and "Traceback" not in said, said
    assert (out / "candidates.json").stat().st_mtime - began < 5, "the picture comes later, without Ray too"
    content = json.loads((out / "candidates.json").read_text())
    assert not content["complete"] and any(c["score"] is not None for c in content["candidates"])
    time.sleep(1)
    assert not local.ray_processes(tmp_path)


@pytest.mark.slow
@needs_ray
def test_no_cluster_at_the_address(folder, tmp_path):  # noqa: F811
    run = shape(*SMALL, "--shapers", folder, "--workers-on", "ray:127.0.0.1:1", "--run-dir", tmp_path / "out")
    said, _ = run.communicate(timeout=100)
    assert run.returncode == 1 and "no Ray cluster at 127.0.0.1:1: Connection refused" in said, said
    assert "Traceback" not in said and not (tmp_path / "out").exists()
