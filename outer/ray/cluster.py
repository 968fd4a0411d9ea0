"""Ray as the engine sees it: nodes with slots, workers on them, and events. Ray itself is imported here, in
``actors.py`` and in ``events.py`` alone.

Whatever happens to a worker becomes an :class:`Event` in one queue, so the engine (``outer/ray/pool.py``) has no
callback and no thread of its own. Ray executes what it is sent, therefore a cluster started here binds to the loopback
and has a token of its own; a cluster elsewhere must have one (docs/security.md).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import envolve
from envolve.core import interrupt
from envolve.core.cleaning import clip, one_line
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray.address import INSTALL, OPEN, installed
from envolve.outer.ray.events import ANSWER, LOST, READY, Event, failure, words
from envolve.outer.ray.foreman import Foreman
from envolve.outer.ray.foremen import Foremen

log = logging.getLogger("envolve")

CONNECT_SECONDS = 3.0
# How Ray tries to connect, read at its import. It would try for 20 s with a wrong token, and for a quarter of an hour
# where something else answers
PATIENCE = {"RAY_NUM_REDIS_GET_RETRIES": "3", "RAY_py_gcs_connect_timeout_s": "5"}
STORE_BYTES = 100 * 2**20  # of a cluster started here: chunks and results are small


@dataclass(frozen=True)
class Node:
    """A machine of the cluster. ``slots``: workers for which it has cores and GPUs."""

    id: str
    name: str
    slots: int


class RayCluster:
    """A connection to Ray. ``cpus`` and ``gpus``: what one worker needs; ``cls``: of the workers' objects, made with
    ``start``. Nodes of many workers have a foreman, which takes what is sent to them."""

    def __init__(
        self, cls: type, start: bytes, cpus: float = 1, gpus: float = 0, foreman: type[Foreman] = Foreman
    ) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray, self._affinity = ray, NodeAffinitySchedulingStrategy
        self._actor = ray.remote(cls)
        self._start, self._cpus, self._gpus = start, cpus, gpus
        self._handles: dict[int, Any] = {}
        self._slots: dict[str, int] = {}  # of each node
        self._requested = False
        self.events = Foremen(ray, self._handles, self._pin, foreman)

    def nodes(self) -> list[Node]:
        """Live nodes that have a slot."""
        found = []
        for node in self._ray.nodes():
            has = node.get("Resources", {})
            slots = int(has.get("CPU", 0) / self._cpus) if self._cpus else 0
            if self._gpus:
                slots = min(slots, int(has.get("GPU", 0) / self._gpus))
            if node.get("Alive") and slots > 0:
                found.append(Node(node["NodeID"], node.get("NodeManagerHostname", node["NodeID"]), slots))
        self._slots = {node.id: node.slots for node in found}
        return sorted(found, key=lambda n: n.id)

    def request(self, workers: int) -> None:
        """Asks an autoscaling cluster for room for this many workers, until :meth:`close`. Other clusters ignore it."""
        from ray.autoscaler.sdk import request_resources

        self._requested = workers > 0
        bundle = {"CPU": self._cpus, **({"GPU": self._gpus} if self._gpus else {})}
        request_resources(bundles=[bundle] * workers)

    def begin(self, worker: int, node: str) -> None:
        """Starts a worker; READY follows, or DIED or UNFIT."""
        handle = self._actor.options(
            num_cpus=self._cpus, num_gpus=self._gpus, max_restarts=0, max_task_retries=0, **self._pin(node)
        ).remote(self._start)
        self._handles[worker] = handle
        self._follow(handle.hello.remote(), READY, worker)
        self.events.hire(worker, node, self._slots.get(node, 0))

    def learn(self, worker: int, key: str, config: bytes) -> None:
        """Comes before the next chunk at this worker."""
        if self.events.has(worker):
            self.events.learn(worker, key, config)
        else:
            self._handles[worker].learn.remote(key, config)

    def send(self, worker: int, token: int, data: bytes) -> None:
        """Hands a chunk to a worker, at :meth:`flush` at the latest; ANSWER follows, or FAILED, LOST or DIED."""
        if self.events.has(worker):
            self.events.send(worker, token, data)
            return
        try:
            ref = self._handles[worker].evaluate.remote(data)
        except self._ray.exceptions.RayError as e:  # no room for a large one in the object store
            self.events.put(Event(LOST, worker, token, text=words(e)))
            return
        self._follow(ref, ANSWER, worker, token)

    def flush(self) -> None:
        self.events.flush()

    def end(self, worker: int) -> None:
        handle = self._handles.pop(worker, None)
        if handle is not None:
            self.events.dismiss(worker)
            with contextlib.suppress(Exception):  # it is dead already, or the cluster is
                self._ray.kill(handle)

    def close(self) -> None:
        for worker in list(self._handles):
            self.end(worker)
        self.events.close()
        if self._requested:  # Ray keeps it after the end of this process: no node would go any more
            with contextlib.suppress(Exception):  # the cluster is gone
                self.request(0)

    def _pin(self, node: str) -> dict[str, Any]:
        """Options that bind an actor to a node."""
        return {"scheduling_strategy": self._affinity(node, soft=False)}

    def _follow(self, ref: Any, kind: str, worker: int, token: int = -1) -> None:
        def done(future: Any) -> None:
            e = future.exception()
            self.events.put(
                failure(e, worker, token, kind == READY) if e else Event(kind, worker, token, future.result())
            )

        ref.future().add_done_callback(done)


# ------------------------------------------------------------------------------------------------------- connections


@contextlib.contextmanager
def connected(address: str | None, cpus: int | None = None) -> Iterator[None]:
    """Within this context the process is connected to Ray. address: ``host:port`` or "auto", a cluster that runs;
    None: one of ``cpus`` CPUs is started here, and ends. A connection that exists is used. Raises ExchangeError."""
    if not installed():
        raise ExchangeError(f"found no package ray; {INSTALL}")
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        yield
        return
    with contextlib.ExitStack() as stack:
        if address is None:
            folder = tempfile.mkdtemp(prefix="envolve_ray_", dir="/tmp")  # short: sockets' names have 107 characters
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.enter_context(_loopback(folder))
            own = os.path.join(folder, OPEN)
            options = {"address": "local", "num_cpus": cpus, "object_store_memory": STORE_BYTES, "_temp_dir": own}
        else:
            _check_reachable(address)
            for name, value in PATIENCE.items():
                os.environ.setdefault(name, value)
            options = {"address": address}
        with interrupt.handlers_kept():  # of SIGTERM
            _init(options, "Ray cannot be started here" if address is None else f"no Ray cluster at {address}")
        import ray

        stack.callback(ray.shutdown)
        if address is not None:
            _check_token(ray.get_runtime_context().gcs_address)
        yield


def _init(options: dict[str, Any], what: str) -> None:
    """``ray.init``, its many exceptions in one line."""
    import ray
    from ray.job_config import JobConfig

    where = str(Path(envolve.__file__).absolute().parents[1])  # a checkout is not installed; elsewhere it is no folder
    try:
        ray.init(
            include_dashboard=False if options["address"] == "local" else None,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
            job_config=JobConfig(_py_driver_sys_path=[where]),
            **options,
        )
    except (ConnectionError, RuntimeError, OSError, ValueError, TimeoutError, ray.exceptions.RayError) as e:
        if ray.is_initialized():
            ray.shutdown()
        raise ExchangeError(f"{what}: {_cause(e)}") from e


def _cause(e: Exception) -> str:
    """What Ray says in many lines, in one, and what helps."""
    text = " ".join(str(e).split())
    if "Version mismatch" in text:
        text = text.partition("This process")[0].strip() + "; install the same versions on all nodes"
    elif "Could not find any running Ray instance" in text:
        text = "found no running one on this machine; start one with ray start --head, or name its host:port"
    elif "Ray expects this IP address" in text:
        text = "this machine is no node of it; join it first: ray start --address=HOST:PORT"
    elif _refused(e):
        text = "its token is not the one here; copy ~/.ray/auth_token from its head, or set RAY_AUTH_TOKEN"
    elif "Failed to connect to Ray cluster" in text:
        text = "what answers there is no Ray, or has another token; copy ~/.ray/auth_token from its head"
    return one_line(clip(text))


def _refused(e: BaseException | None) -> bool:
    """Whether a wrong token is among the causes."""
    kind = getattr(sys.modules["ray"].exceptions, "AuthenticationError", ())
    return e is not None and (isinstance(e, kind) or _refused(e.__cause__ or e.__context__))


def _check_reachable(address: str) -> None:
    """Finds a wrong address at once, where Ray would try for long. Raises ExchangeError."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as e:
        words = "start one with ray start --head, and take the address that it prints"
        raise ExchangeError(f"no Ray cluster at {address}: {e.strerror or e}; {words}") from e


def _check_token(address: str) -> None:
    """Raises ExchangeError for a cluster that anybody in the network may send code to, unless the user has said so."""
    host = address.rpartition(":")[0].strip("[]")
    if host.startswith("127.") or host in ("localhost", "::1") or os.environ.get("RAY_AUTH_MODE", "") == "token":
        return
    if os.environ.get("RAY_AUTH_MODE", "") == "disabled":
        log.warning("the Ray cluster at %s has no token: whoever reaches it may execute code there", address)
        return
    raise ExchangeError(
        f"the Ray cluster at {address} has no token, so whoever reaches it may execute code there; start it with one: "
        "ray get-auth-token --generate, the file ~/.ray/auth_token on every node (RAY_AUTH_MODE=disabled: as it is)"
    )


@contextlib.contextmanager
def _loopback(folder: str) -> Iterator[None]:
    """Environment of a cluster on this machine alone. Ray reads it when it is imported, and its processes inherit it.
    folder: for all that they leave."""
    own = {
        "TMPDIR": folder,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # no address but 127.0.0.1, as on those systems
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_worker_niceness": "0",  # the default of 15 halves the speed beside any other process
        "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    }
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
