"""Random schedules: writes of workers are late, reordered, lost and torn, workers die and come back; all ends well."""

from __future__ import annotations

import random

import pytest
import torch

from outer.backlog import Patience
from outer.worker import SecondWorkerError
from tests.outer.virtual import Cluster, VirtualFiles, chunks_of


class FaultyFiles(VirtualFiles):
    """The folder for one worker: what it writes gets there at once, later, in another order, torn, or not at all."""

    def __init__(self, cluster, pid, rng):
        super().__init__(cluster.machine)
        self._cluster, self._pid, self._rng = cluster, pid, rng

    def write(self, name, data):
        fate = self._rng.random()
        if name.endswith("heartbeat"):
            if fate < 0.9:
                super().write(name, data)
            return
        if fate < 0.05:
            return
        if fate < 0.1:
            data = data[: self._rng.randrange(len(data))]
        if fate < 0.5:
            super().write(name, data)
        else:
            at = self._cluster.machine.now + self._rng.random() * 3
            self._cluster.delayed.append((at, self._pid, name, data))


def run(seed):
    rng = random.Random(seed)
    cluster = Cluster()
    cluster.delayed = []
    healthy = cluster.files

    def start(worker_id):
        cluster.files = FaultyFiles(cluster, worker_id, rng)
        try:
            cluster.worker(worker_id, name=rng.choice(["here", "there"]))
        except SecondWorkerError:
            pass
        cluster.files = healthy

    def turmoil():
        due = [d for d in cluster.delayed if d[0] <= cluster.machine.now]
        for write in due:
            cluster.delayed.remove(write)
            healthy.write(write[2], write[3])
        if cluster.machine.now < 1600 and rng.random() < 0.05:
            worker_id = rng.randrange(3)
            if worker_id in cluster.hosts:
                cluster.kill(worker_id)
        if rng.random() < 0.1:
            start(rng.randrange(3))
        for host in cluster.hosts.values():
            host.stopped = cluster.machine.now < 1600 and rng.random() < (0.9 if host.stopped else 0.02)

    master = cluster.master(on_wait=turmoil, worker_timeout=8.0, patience=Patience(max_attempts=10**6))
    for generation in range(3):
        chunks = chunks_of(6, generation)
        results = master.evaluate(chunks)
        for result, chunk in zip(results, chunks):
            assert result.error == "" and result.generation == generation
            assert torch.equal(result.values["score"], chunk.worlds.sum(1).double())
    return cluster.machine.now


@pytest.mark.parametrize("seed", range(12))
def test_every_chunk_is_answered_rightly_whatever_happens(seed):
    run(seed)
