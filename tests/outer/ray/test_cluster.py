"""Ray itself: a head and nodes on this machine. The bytes of one process through whatever dies.

python -m pytest tests/outer/ray -m slow -n 0
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray.address import installed
from envolve.outer.ray.cluster import RayCluster, connected
from envolve.outer.ray.evaluator import Evaluator, setup, versions
from envolve.outer.ray.pool import RayPool
from tests.envs.outside.test_outside import OWN
from tests.outer.ray import local
from tests.outer.small import CLIFF, ROOT, cliff, default_sigint
from tests.outer.test_run import _no_picture, files, go, undisturbed  # noqa: F401
from tests.outer.virtual import chunks_of, fake
from tests.test_examples import TINY

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not installed(), reason="no ray: pip install 'envolve[ray]'")]


class Slow(Evaluator):
    """Half a second per chunk."""

    def __init__(self, start: bytes) -> None:
        super().__init__(start, lambda: slowly)


def slowly(*args):
    time.sleep(0.5)
    return fake(*args)


def big(config, worlds, seeds, mode, threads):
    return {**fake(config, worlds, seeds, mode, threads), "more": torch.zeros(len(seeds), 2**18)}


class Big(Evaluator):
    """Results of some megabytes, which go through the object store."""

    def __init__(self, start: bytes) -> None:
        super().__init__(start, lambda: big)


@pytest.fixture(scope="module")
def ray_cluster():
    with local.cluster(1, 1) as made, connected(made.address):
        yield made


@contextlib.contextmanager
def pool_of(cls=Evaluator):
    cluster = RayCluster(cls, setup("run", {}))
    pids = {}
    with RayPool(cluster, "run", versions()) as pool:
        welcome = pool._staff.welcome

        def note(worker, said):
            pids[worker] = int(said["pid"])
            return welcome(worker, said)

        pool._staff.welcome = note
        yield pool, pids


def check(results, chunks):
    for result, chunk in zip(results, chunks, strict=True):
        assert result.error == "" and result.chunk_id == chunk.chunk_id
        assert torch.equal(result.values["score"], chunk.worlds.sum(1).double())


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return undisturbed(tmp_path_factory, cliff())


class Faults:
    """An engine that does something before some of its generations."""

    def __init__(self, pool, faults):
        self.pool, self.faults, self.calls, self.run_id = pool, faults, 0, pool.run_id

    def evaluate(self, chunks, unfit=None):
        self.calls, self.chunks = self.calls + 1, chunks
        if self.calls in self.faults:
            self.faults[self.calls]()
        return self.pool.evaluate(chunks, unfit)


@pytest.fixture(params=[False, True], ids=["called directly", "foremen"])
def foremen(request, monkeypatch):
    """Whether these nodes of one slot have foremen, as nodes of many slots do."""
    if request.param:
        monkeypatch.setattr("envolve.outer.ray.foremen.MANY", 1)
    return request.param


def posts(pool):
    return pool._cluster.events._posts


def test_a_run_through_dead_workers_and_nodes_gives_the_same_bytes(ray_cluster, tmp_path, reference, foremen):
    """A worker SIGKILLed, a node killed, another added, in one run."""
    node = sorted(ray_cluster.worker_nodes, key=lambda n: n.node_id)[-1]
    with pool_of() as (pool, pids):

        def kill_worker():
            os.kill(pids[max(w for w in pids if pool._members.get(w))], signal.SIGKILL)

        faults = {
            2: kill_worker,
            3: lambda: ray_cluster.remove_node(node, allow_graceful=False),
            4: lambda: local.add(ray_cluster, 1),
            6: kill_worker,
        }
        engine = Faults(pool, faults)
        go(cliff(), tmp_path / "run", dispatcher=engine)
        assert files(tmp_path / "run") == reference and engine.calls >= 7
        assert bool(posts(pool)) is foremen
        by = time.monotonic() + 60
        while len(pids) < 4 and time.monotonic() < by:  # the run may be over before the last worker is there
            pool.evaluate(engine.chunks)
        assert len(pids) >= 4


def test_a_run_through_dead_foremen_gives_the_same_bytes(ray_cluster, tmp_path, reference, monkeypatch):
    """One killed between two generations, one with its chunks under way: their workers are called directly."""
    import ray

    monkeypatch.setattr("envolve.outer.ray.foremen.MANY", 1)
    with pool_of() as (pool, pids):

        def kill(later):
            handle = next(iter(posts(pool).values())).handle
            if later:
                threading.Timer(0.01, ray.kill, [handle]).start()
            else:
                ray.kill(handle)

        engine = Faults(pool, {3: lambda: kill(False), 5: lambda: kill(True)})
        go(cliff(), tmp_path / "run", dispatcher=engine)
        assert files(tmp_path / "run") == reference
        by = time.monotonic() + 30
        while posts(pool) and time.monotonic() < by:  # the run may be over before the second is noticed
            pool.evaluate(engine.chunks)
        assert not posts(pool) and len(pids) == 2, "no worker died with them"


def test_workers_killed_at_work(ray_cluster, caplog, foremen):
    chunks = chunks_of(8)
    with pool_of(Slow) as (pool, pids):
        stop = threading.Event()

        def killer():
            for _ in range(3):
                while not pids:
                    time.sleep(0.1)
                time.sleep(0.7)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[max(pids)], signal.SIGKILL)

        thread = threading.Thread(target=killer)
        thread.start()
        check(pool.evaluate(chunks), chunks)
        stop.set()
        thread.join()
    assert "died" in caplog.text


def test_a_full_object_store(ray_cluster, foremen):
    """Other data fill it; chunks and results go through."""
    import numpy as np
    import ray

    held = [ray.put(np.zeros(10 * 2**20, np.uint8)) for _ in range(24)]  # more than all stores hold
    chunks = chunks_of(6, size=100_000)  # 1.2 MB each
    with pool_of(Big) as (pool, _):
        check(pool.evaluate(chunks), chunks)
    assert len(held) == 24


def test_a_node_with_another_version_ends_in_one_line(ray_cluster):
    cluster = RayCluster(Evaluator, setup("run", {}))
    with RayPool(cluster, "run", {**versions(), "envolve": "0"}) as pool:
        with pytest.raises(ExchangeError, match=r"^no worker can be started on Ray: node \S+ has envolve \S+ .* there"):
            pool.evaluate(chunks_of(1))


class Absent(Evaluator):
    def hello(self):
        raise ModuleNotFoundError("No module named 'numba'")


def test_a_worker_that_cannot_load_ends_in_one_line(ray_cluster):
    with RayPool(RayCluster(Absent, setup("run", {})), "run", versions()) as pool:
        with pytest.raises(ExchangeError, match="No module named 'numba'"):
            pool.evaluate(chunks_of(1))


# ------------------------------------------------------------------------------------------------- whole commands


SMALL = ("--set", *CLIFF)
CONFIG = str(ROOT / "default_config_gridworld_reward_env_paper.yaml")


def command(*words, mark="", **options):
    """mark: for ``local.ray_processes``."""
    return subprocess.Popen(
        [sys.executable, "-m", "envolve", "run", *map(str, words)],
        cwd=ROOT,
        text=True,
        env=local.environ_of(mark) | options.pop("env", {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )


ENV = """
env_name: gymnasium:my_env.py:Corridor
agents:
  gtn: {agent_name: DDQN, backend: torch, max_iterations: 2, num_workers: 2, num_orig_evals: 2, comparison_agents: 2}
  ddqn: {train_steps: 60, train_episodes: 60, init_episodes: 0, batch_size: 8, hidden_size: 8, test_episodes: 2}
envs:
  gymnasium:my_env.py:Corridor: {hidden_size: 8, max_steps: 12, contextual_bandit: true, env_kwargs: {length: 4}}
"""


@pytest.mark.parametrize("kind", ["task, learner and search", "environment"])
def test_files_of_the_users_own_reach_the_workers(ray_cluster, tmp_path, kind):
    """The bytes are those of the file exchange; no worker sees the files' folder."""
    if kind == "environment":
        (tmp_path / "my_env.py").write_text(OWN)
        (tmp_path / "mine.yaml").write_text(ENV)
        words = [tmp_path / "mine.yaml"]
    else:
        words = [ROOT / "examples" / "my_own.yaml", "--set", *TINY]
    found = []
    for engine in (["--workers-on", f"ray:{ray_cluster.address}"], ["--workers", 1]):
        results = tmp_path / f"results{len(found)}"
        run = command(*words, *engine, "--results-dir", results, env=local.ENVIRON)
        out, _ = run.communicate(timeout=300)
        assert run.returncode == 0, out
        found.append(files(next(results.iterdir())))
    assert found[0] == found[1]


def test_a_cluster_of_its_own(tmp_path, reference):
    run = command(CONFIG, *SMALL, "--workers-on", "ray", "--workers", "2", "--results-dir", tmp_path, mark=tmp_path)
    for line in run.stdout:
        if "worker 1 is there" in line:
            assert len(local.ray_processes(tmp_path)) >= 3, "they are found while they run"
            break
    out, _ = run.communicate(timeout=300)
    assert run.returncode == 0, out
    (folder,) = tmp_path.iterdir()
    assert files(folder) == reference and not local.ray_processes(tmp_path)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_it_without_orphans(tmp_path, number, code):
    words = [*SMALL, "agents.gtn.max_iterations=100000", "--workers-on", "ray", "--workers", "2"]
    options = {"start_new_session": True, "preexec_fn": default_sigint, "mark": tmp_path}
    run = command(CONFIG, *words, "--results-dir", tmp_path, **options)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("*/checkpoint.pt")) and time.monotonic() < deadline:
        time.sleep(0.2)
    began = time.monotonic()
    run.send_signal(number)
    out, _ = run.communicate(timeout=60)
    assert run.returncode == code and time.monotonic() - began < 5 and "continue with:" in out, out
    assert "--workers-on ray" in out and "Traceback" not in out
    time.sleep(1)
    assert not local.ray_processes(tmp_path)


def test_the_head_dies_and_the_run_is_resumed(tmp_path, reference):
    """A new cluster goes on where the one that was killed had come to."""
    with local.cluster(1) as made:
        words = [*SMALL, "--workers-on", f"ray:{made.address}", "--results-dir", tmp_path]
        run = command(CONFIG, *words, env=local.ENVIRON)
        while not list(tmp_path.glob("*/checkpoint.pt")) and run.poll() is None:
            time.sleep(0.05)
        made.head_node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
        out, _ = run.communicate(timeout=180)
    (folder,) = tmp_path.iterdir()
    assert Path(folder / "checkpoint.pt").exists()
    again = command("--resume", folder, "--workers-on", "ray", "--workers", "1")
    out, _ = again.communicate(timeout=300)
    assert again.returncode == 0, out
    assert files(folder) == reference


def test_no_cluster_at_the_address(tmp_path):
    refused = "no Ray cluster at 127.0.0.1:1: Connection refused"
    for address, words in (("127.0.0.1:1", refused), ("auto", "no Ray cluster")):
        run = command(CONFIG, *SMALL, "--workers-on", f"ray:{address}", "--results-dir", tmp_path)
        out, _ = run.communicate(timeout=100)
        lines = [line for line in out.splitlines() if "no Ray cluster" in line]  # beside warnings of Ray's own
        assert run.returncode == 1 and len(lines) == 1 and words in lines[0] and "Traceback" not in out, out
        assert not list(tmp_path.iterdir()), "nothing was left behind"
