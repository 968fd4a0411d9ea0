"""Compiles a learner's loop once, in a process of its own, before any process uses it from the cache on disk.

The process that compiles a kernel can end up calling copies of inner functions that were optimised apart from the
kernel; whoever loads the cached kernel calls the copies within it. Where sums may be reordered the two differ in the
last bit, so the first worker's results would differ from all others'. It also keeps workers that start together from
compiling the same thing side by side.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

import numba
from llvmlite import binding

from agents.kernels import cache_dir

log = logging.getLogger("envolve")
ROOT = Path(__file__).resolve().parents[2]
_CHILD = "ENVOLVE_COMPILES"  # set in the environment of the process that compiles
CONTINUOUS = ("td3", "sac")  # learners that need a task with continuous actions to be compiled on


@functools.lru_cache(maxsize=None)
def compiled_ahead(name: str) -> None:
    """Before the first use of learner ``name``'s compiled loop in this process. name: a key of ``LEARNERS``,
    "shaped_ppo", "crl", or a key of ``update.AHEAD``."""
    if os.environ.get(_CHILD):
        return
    build = f"{name}-{sys.implementation.cache_tag}-numba{numba.__version__}-{binding.get_host_cpu_name()}"
    done = cache_dir() / f"{build}.compiled"
    if done.exists():
        return
    done.parent.mkdir(parents=True, exist_ok=True)
    with _locked(done.with_suffix(".lock")):
        if done.exists():  # another process was faster
            return
        log.info("compiling %s, once on this machine: about half a minute", name)
        command = [sys.executable, "-m", "agents.kernels.ahead", name]
        child = subprocess.run(command, cwd=ROOT, env={**os.environ, _CHILD: "1"}, capture_output=True, text=True)
        if child.returncode == 0:
            done.touch()
        else:
            log.warning("%s is compiled in this process, whose results may differ in the last bit from those of "
                        "processes that load it:\n%s", name, child.stderr[-2000:])  # fmt: skip


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time, where the file system can lock."""
    with path.open("w") as file:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(name: str) -> None:
    """In the child: the shortest training that there is."""
    import numpy as np
    import torch

    from agents.kernels import crl_population, shaped_ppo_population, update
    from agents.sections import LEARNERS
    from agents.train import train
    from envs.section import EnvSection
    from envs.task import make_task

    if name == "shaped_ppo":
        return shaped_ppo_population.shortest()
    if name == "crl":
        return crl_population.shortest()
    if name in update.AHEAD:
        return update.shortest(name)
    shortest: Any = {"train_episodes": 2, "init_episodes": 0, "hidden_size": 1, "hidden_layer": 1, "test_episodes": 1}
    shortest.update({"num_envs": 1, "rollout_steps": 2, "ppo_epochs": 1} if name == "ppo" else {"batch_size": 1})
    task = make_task("Pendulum-v0" if name in CONTINUOUS else "CartPole-v0", max_steps=2)
    train(
        name, LEARNERS[name](**shortest), None, task, "real", EnvSection(), torch.zeros(1, 1), np.zeros(1, np.int64),
        backend="compiled",
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
