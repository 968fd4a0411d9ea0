"""From a configuration to a pool of Ray workers: ``--workers-on ray[:ADDRESS]``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envolve.core.files import TEXT_BYTES, read_plain
from envolve.envs.outside.build import DESCRIPTION_FILE, file_and_class, is_outside
from envolve.outer.exchange.evaluation import threads_of
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray.address import address_of
from envolve.outer.ray.cluster import RayCluster, connected
from envolve.outer.ray.evaluator import Evaluator, setup, versions
from envolve.outer.ray.pool import RayPool


@contextlib.contextmanager
def ray_pool(data: Mapping[str, Any], run_dir: Path, workers_on: str, workers: int | None) -> Iterator[RayPool]:
    """Pool of workers for the run in ``run_dir``. workers: how many, None: as many as there is room for. Raises
    ExchangeError."""
    name, threads = run_dir.resolve().name, threads_of(dict(data))
    start = setup(name, own_files(data, run_dir))
    with ray_cluster(Evaluator, start, workers_on, workers, threads, str(data.get("device", "cpu"))) as cluster:
        with RayPool(cluster, name, versions(), count=workers) as pool:
            yield pool


@contextlib.contextmanager
def ray_cluster(
    cls: type, start: bytes, workers_on: str, count: int | None, cpus: int, device: str
) -> Iterator[RayCluster]:
    """The cluster that ``workers_on`` names; one of its own has room for ``count`` workers, None: for as many as fit
    into this machine. cls, start, cpus: of a worker. Raises ExchangeError."""
    gpus, address = device_share(device), address_of(workers_on)
    room = cpus * (count or max(1, len(os.sched_getaffinity(0)) // cpus)) if address is None else None
    with connected(address, room):
        cluster = RayCluster(cls, start, cpus, gpus)
        if gpus and not cluster.nodes():
            raise ExchangeError(f"device: found {device}, and no node of the Ray cluster has a GPU")
        yield cluster


def device_share(device: str) -> float:
    """GPUs per worker. Raises ExchangeError for a device that a worker of Ray cannot have."""
    if device == "cpu":
        return 0
    if device in ("cuda", "cuda:0"):  # Ray shows each worker one GPU, which is its first
        return 1
    raise ExchangeError(f"device: found {device}, expected cuda: Ray says which worker has which GPU")


def own_files(data: Mapping[str, Any], run_dir: Path) -> dict[str, bytes]:
    """Files of the user's own that the run keeps in its folder, for its workers."""
    env_name = data.get("env_name", "")
    reference = file_and_class(env_name) if is_outside(env_name) else None
    names = [*data.get("plugins", {}), DESCRIPTION_FILE, *([os.path.basename(reference[0])] if reference else [])]
    return {name: read_plain(run_dir / name, TEXT_BYTES) for name in names if (run_dir / name).is_file()}
