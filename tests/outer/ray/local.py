"""Ray clusters of several nodes on this machine, on the loopback and with a token of their own."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Iterator

from envolve.core.environ import added

STORE = 100 * 2**20  # bytes
ENVIRON = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "a" * 64,
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


MARK = "ENVOLVE_TEST_MARK"


def environ_of(mark: Path) -> dict[str, str]:
    """Environment of a command that is to know nothing of the tests' own cluster; ``ray_processes`` finds what it
    starts."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {MARK: str(mark)}


def ray_processes(mark: Path) -> list[int]:
    """Ids of Ray's processes that a command with this mark has started; on a shared machine there are others."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title, environ = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        of_ray = b"/ray/core/src/ray/" in title or title.startswith(b"ray::")
        if of_ray and f"{MARK}={mark}".encode() in environ.split(b"\0"):
            found.append(int(folder.name))
    return found


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Ray reads it when it is imported, so that is to happen within."""
    Path("/tmp/ray").mkdir(exist_ok=True)  # where cluster_utils writes an address, whatever its folder
    with added(ENVIRON):
        yield


@contextlib.contextmanager
def cluster(*cpus: int) -> Iterator[Any]:
    """A head without CPUs, and nodes with so many."""
    with environment():
        from ray.cluster_utils import Cluster

        made = Cluster(
            initialize_head=True,
            shutdown_at_exit=False,
            head_node_args={"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False},
        )
        try:
            for n in cpus:
                add(made, n)
            yield made
        finally:
            made.shutdown()


def add(made: Any, cpus: int) -> Any:
    return made.add_node(num_cpus=cpus, object_store_memory=STORE)
