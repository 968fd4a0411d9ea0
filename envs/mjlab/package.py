"""The package mjlab: import, version, names of its tasks."""

from __future__ import annotations

import importlib.metadata
from types import ModuleType
from typing import Any, List

from envolve.core.registry import nearest
from envolve.envs.sim.simulator import SimulatorError

PREFIX = "mjlab:"  # of a task's name here
VERSION = "1.6."  # the managers' attributes that ``environment.py`` and ``terms.py`` use are those of these releases
INSTALL = "make setup-mjlab (docs/mjlab.md)"


def is_mjlab(task: str) -> bool:
    return task.lower().startswith(PREFIX)


def name_of(task: str) -> str:
    """mjlab's own name of a task."""
    return task[len(PREFIX) :] if is_mjlab(task) else task


def load() -> ModuleType:
    """mjlab's registry of tasks. Raises SimulatorError if mjlab is missing, broken or of another version."""
    try:
        version = importlib.metadata.version("mjlab")
    except importlib.metadata.PackageNotFoundError:
        raise SimulatorError(f"mjlab is not installed in this Python environment: {INSTALL}") from None
    if not version.startswith(VERSION):
        raise SimulatorError(f"found mjlab {version}, expected {VERSION}*: {INSTALL}")
    try:
        import mjlab.tasks  # noqa: F401  registers the tasks
        from mjlab.tasks import registry
    except Exception as e:
        raise SimulatorError(f"mjlab {version} cannot be imported: {type(e).__name__}: {e}") from e
    found: ModuleType = registry
    return found


def task_names() -> List[str]:
    """Names of all registered tasks. Raises SimulatorError."""
    return list(load().list_tasks())


def find_task(task: str) -> str:
    """mjlab's name of a task given in any case of letters, with or without the prefix. Raises SimulatorError with the
    nearest name."""
    names = {name.lower(): name for name in task_names()}
    wanted = name_of(task).lower()
    if wanted not in names:
        near = nearest(wanted, names.values(), cutoff=0.0)
        hint = f"; nearest: {near!r}" if near else ""
        raise SimulatorError(f"mjlab has no task {name_of(task)!r}{hint}; it has {', '.join(sorted(names.values()))}")
    return names[wanted]


def configuration(task: str, num_envs: int) -> Any:
    """A fresh configuration of the task for so many environments. Environments are reset by the caller, so that the
    observation at an episode's end is seen. Raises SimulatorError."""
    name = find_task(task)
    cfg = load().load_env_cfg(name)
    cfg.scene.num_envs = num_envs
    cfg.seed = 0  # of terrains; everything else is drawn by ``draws.py``
    cfg.auto_reset = False
    return cfg
