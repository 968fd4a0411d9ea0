"""What workers ask Ray for: GPUs, cores, niceness, and room on a cluster that grows. With Ray itself:

python -m pytest tests/outer/ray/test_resources.py -m slow -n 0
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray.address import installed
from envolve.outer.ray.cluster import RayCluster, connected
from envolve.outer.ray.evaluator import Evaluator, setup, versions
from envolve.outer.ray.pool import RayPool
from envolve.outer.ray.start import ray_cluster
from envolve.slurm.ray_job import free_port
from tests.outer.ray import local
from tests.outer.ray.test_cluster import check
from tests.outer.virtual import chunks_of, fake

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not installed(), reason="no ray: pip install 'envolve[ray]'")]


UNUSED = (  # keys of an autoscaler's configuration, which has to have them
    "cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands",
    "head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands",
)  # fmt: skip


def noted(config, worlds, seeds, mode, threads):
    """Beside the scores, what the worker's process has."""
    found = fake(config, worlds, seeds, mode, threads)
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return {**found, "more": torch.tensor([[int(gpu or -1), os.nice(0), os.getpid()]] * len(seeds))}


class Noted(Evaluator):
    def __init__(self, start: bytes) -> None:
        super().__init__(start, lambda: noted)


def notes(results):
    return [result.values["more"][0].tolist() for result in results]


def test_gpus_cores_and_niceness():
    """Ray's own count of GPUs: a node may say that it has two."""
    with local.cluster() as made, connected(made.address):
        there = f"ray:{made.address}"
        with pytest.raises(ExchangeError, match="device: found cuda, and no node of the Ray cluster has a GPU"):
            with ray_cluster(Noted, setup("run", {}), there, None, 1, "cuda"):
                pass
        local.add(made, 2)
        made.add_node(num_cpus=4, num_gpus=2, object_store_memory=local.STORE)
        with ray_cluster(Noted, setup("run", {}), there, None, 1, "cuda") as cluster:
            assert [node.slots for node in cluster.nodes()] == [2], "one for each GPU"
            with RayPool(cluster, "run", versions()) as pool:
                chunks = chunks_of(12)
                results = pool.evaluate(chunks)
                check(results, chunks)
        found = notes(results)
        assert {gpu for gpu, _, _ in found} <= {0, 1} and len({pid for *_, pid in found}) <= 2
        assert {nice for _, nice, _ in found} == {os.nice(0)}, "as quick as the driver"
        with ray_cluster(Noted, setup("run", {}), there, None, 2, "cpu") as cluster:
            assert sorted(node.slots for node in cluster.nodes()) == [1, 2], "two cores each"


def test_a_cluster_that_grows(tmp_path):
    """Ray's own autoscaler, whose machines are processes here: a head without a core, two nodes of one core at most."""
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    one = {"resources": {"CPU": 1, "object_store_memory": local.STORE}, "node_config": {}, "min_workers": 0}
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    kinds = {"ray.head.default": head, "one": {**one, "max_workers": 2}}
    config = {"cluster_name": "growing", "max_workers": 2, "upscaling_speed": 1.0, "idle_timeout_minutes": 5,
              "provider": {"type": "fake_multinode", "gcs_address": address}, "head_node_type": "ray.head.default",
              "available_node_types": kinds, "file_mounts_sync_continuously": False}  # fmt: skip
    config |= {name: {} for name in ("auth", "docker", "file_mounts")}
    config |= {name: [] for name in UNUSED}
    (tmp_path / "scaling.json").write_text(json.dumps(config))
    words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=0",
             "--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}", "--include-dashboard=false",
             f"--object-store-memory={local.STORE}", f"--ray-client-server-port={free_port('127.0.0.1')}",
             f"--autoscaling-config={tmp_path / 'scaling.json'}"]  # fmt: skip
    with local.environment():
        environ = os.environ | {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(words, env=environ, stdout=log, stderr=log, start_new_session=True)
        try:
            end = time.monotonic() + 90
            while "Ray runtime started" not in (tmp_path / "log").read_text():
                assert process.poll() is None and time.monotonic() < end, (tmp_path / "log").read_text()
                time.sleep(0.2)
            with connected(address):
                cluster = RayCluster(Noted, setup("run", {}))
                assert cluster.nodes() == [], "nothing is there before it is asked for"
                with RayPool(cluster, "run", versions(), count=2) as pool:
                    chunks = chunks_of(8)
                    results = pool.evaluate(chunks)
                    check(results, chunks)
                    assert len(cluster.nodes()) >= 1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
