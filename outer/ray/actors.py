"""Actors that Ray itself starts again when they die, on any node that has room, and calls to them.

For programs that find their state again by themselves: a call that was under way when its actor died is made again, so
it must do nothing a second time. Workers that only evaluate are ``outer/ray/staff.py``'s.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, List, Optional, Tuple

MOST_RESTARTS = 1000  # of one actor: more is a program that cannot run
NODE_LABEL = "ray.io/node-id"  # which Ray gives each node
Handle = Any


class Gone(Exception):
    """Raised by a call to an actor that will not come back."""


def begin(
    cls: type,
    *args: Any,
    cpus: float,
    threads: int = 1,
    node: Optional[str] = None,
    apart: Optional[str] = None,
    name: Optional[str] = None,
) -> Handle:
    """Starts an actor. threads: calls that it may serve at once; node: where it has to be; apart: a node to avoid
    unless it is the only one; default: anywhere, spread over all nodes if it reserves no CPU; name: for ``named``."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if node is not None:
        where: Dict[str, Any] = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
    elif apart is not None:
        where = elsewhere(apart)
    else:
        where = {"scheduling_strategy": None if cpus else "SPREAD"}
    options = {"num_cpus": cpus, "max_concurrency": threads, "max_restarts": MOST_RESTARTS, "max_task_retries": -1}
    return ray.remote(cls).options(**options, **where, name=name).remote(*args)


def elsewhere(node: str) -> Dict[str, Any]:
    """Options: any node but this one, which is the last resort."""
    return {"label_selector": {NODE_LABEL: f"!{node}"}, "fallback_strategy": [{"label_selector": {}}]}


def named(name: str) -> Handle:
    """An actor of this job, wherever it is. An actor that is to be started again must not have another's handle among
    its arguments: Ray keeps those in the store of a node (github.com/ray-project/ray/issues/53727)."""
    import ray

    return ray.get_actor(name)


def call(actor: Handle, method: str, *args: Any) -> Any:
    """Waits for the answer. Raises Gone, and what the method raises."""
    import ray

    try:
        return ray.get(getattr(actor, method).remote(*args))
    except (ray.exceptions.RayActorError, ray.exceptions.RaySystemError) as e:
        raise Gone(str(e).splitlines()[0]) from None


def tell(actor: Handle, method: str, *args: Any) -> None:
    """Does not wait."""
    getattr(actor, method).remote(*args)


def within(seconds: float, actor: Handle, method: str, *args: Any) -> None:
    """Waits for the answer at most so long, and ignores whatever happens."""
    import ray

    with contextlib.suppress(Exception):
        ray.get(getattr(actor, method).remote(*args), timeout=seconds)


def end(actor: Handle) -> None:
    import ray

    with contextlib.suppress(Exception):  # it is dead already, or the cluster is
        ray.kill(actor)


class Calls:
    """Calls under way, by a name of any kind."""

    def __init__(self) -> None:
        self._refs: Dict[Any, Any] = {}

    def begin(self, name: Any, actor: Handle, method: str, *args: Any, again: bool = True) -> None:
        """again: whether the call is made again after a death of the actor; else it raises."""
        retries = -1 if again else 0
        self._refs[getattr(actor, method).options(max_task_retries=retries).remote(*args)] = name

    def ended(self, timeout: float) -> List[Tuple[Any, Any, Optional[BaseException]]]:
        """Name, answer and exception of those that have ended; waits for the first at most ``timeout`` seconds."""
        import ray

        if not self._refs:
            time.sleep(timeout)
            return []
        ready, _ = ray.wait(list(self._refs), num_returns=1, timeout=timeout)
        found: List[Tuple[Any, Any, Optional[BaseException]]] = []
        for ref in ready:
            name = self._refs.pop(ref)
            try:
                found.append((name, ray.get(ref), None))
            except Exception as e:  # whatever the method raised, or what happened to its actor
                found.append((name, None, e))
        return found


def node_here() -> str:
    """The node of this process."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def others(here: str) -> List[str]:
    """Live nodes but this one."""
    import ray

    return [str(node["NodeID"]) for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]


def cpus_of_nodes() -> List[float]:
    """CPUs of each live node."""
    import ray

    return [float(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]


def gone() -> type:
    """What :class:`Calls` reports of an actor that will not come back."""
    import ray

    kind: type = ray.exceptions.RayActorError
    return kind
