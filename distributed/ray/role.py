"""A program of a run as an actor of Ray: learner, collector or evaluator, in a folder of its own on any node."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from envolve.core.files import TORCH_BYTES, read_plain
from envolve.distributed.engine.calls import HubGone
from envolve.distributed.files.params_file import frozen
from envolve.distributed.files.run_folder import SESSION, read_settings
from envolve.distributed.programs.evaluator import EVALUATIONS
from envolve.distributed.programs.learner import CHECKPOINT
from envolve.distributed.programs.running import run_collector, run_evaluator, run_learner
from envolve.distributed.programs.turns import WAIT
from envolve.distributed.ray.hub import RayChart, RayHub, RayLog
from envolve.distributed.ray.keeper import BEGUN_WITH
from envolve.envs.worlds.file import write_atomic
from envolve.outer.checkpoint import RunError
from envolve.outer.config.yaml_lines import ConfigError
from envolve.outer.ray import actors
from envolve.outer.ray.evaluator import Versions, differences, versions
from envolve.outer.ray.own_folder import own_folder

log = logging.getLogger("envolve")

BEAT = 2.0  # s
ROOM = "distributed"  # whose code a result depends on, too


class Mirror:
    """Files of the run that a program needs, in its own folder."""

    def __init__(self, actor: actors.Handle, folder: Path) -> None:
        self.actor, self.folder = actor, folder
        self.known = 0  # policies that the run had

    def fetch(self, names: Sequence[str]) -> None:
        """Gets those that the run has and this folder lacks."""
        for name in names:
            path = self.folder / name
            if not path.exists():
                data = actors.call(self.actor, "fetch", name)
                if data is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_atomic(str(path), data)

    def keep(self, name: str) -> None:
        """Hands a file to the hub, and waits until it lies there."""
        actors.call(self.actor, "keep", name, read_plain(self.folder / name, TORCH_BYTES))

    def done(self) -> bool:
        return bool(actors.call(self.actor, "done"))

    def done_and_policies(self) -> bool:
        """Whether the run is complete; afterwards all policies that were there then are here."""
        over, names = actors.call(self.actor, "news", 0, 0.0)
        self.fetch(names)
        self.known = len(names)
        return bool(over)

    def wait(self) -> None:
        """Waits at most WAIT seconds until the run has more policies, or is complete."""
        actors.call(self.actor, "news", self.known, WAIT)


class RayRole:
    """A program. What it is comes with ``run``, for Ray keeps the arguments of a call as long as that is made again."""

    def run(
        self, role: str, worker: int, threads: int, mine: Versions, hub: actors.Handle, words: actors.Handle
    ) -> str:
        """Runs the program to the end of the run -> "", or why another start would not help. role: learner, collector
        or evaluator; mine: versions of the driver; words: takes charts and log. Raises OSError, Gone."""
        if other := differences(mine, versions(ROOM)):
            return f"node {socket.gethostname()} has {', '.join(other)}; install the same on all nodes"
        torch.set_num_threads(threads)
        name = f"collector_{worker}" if role == "collector" else role
        try:
            with alive(words, name), own_folder() as folder, logged(RayLog(words, name)):
                log.info("it is there: pid %d on %s", os.getpid(), socket.gethostname())
                _run(role, worker, folder, hub, RayChart(words, role, worker))
        except (RunError, ConfigError) as e:
            return str(e)
        except HubGone as e:
            raise OSError(str(e)) from None
        return ""


def _run(role: str, worker: int, folder: Path, actor: actors.Handle, board: RayChart) -> None:
    mirror, hub = Mirror(actor, folder), RayHub(actor)
    mirror.fetch(BEGUN_WITH)
    params, settings = frozen(folder), read_settings(folder)
    if role == "learner":
        if not mirror.done():
            mirror.fetch((SESSION, CHECKPOINT))
            run_learner(params, settings, folder, hub, board, mirror.keep)
    elif role == "collector":
        run_collector(params, settings, worker, hub, board, lambda: False)  # the hub says when it is over
    else:
        mirror.fetch((EVALUATIONS,))
        run_evaluator(params, settings, folder, board, mirror.done_and_policies, mirror.keep, mirror.wait)


@contextmanager
def alive(words: actors.Handle, name: str) -> Iterator[None]:
    """Says every BEAT seconds that the program runs. Ray itself cannot be asked: the program has the only thread that
    answers. With a second one Ray would wake the process a hundred times per second."""
    ended = threading.Event()

    def beat() -> None:
        actors.tell(words, "alive", name)
        while not ended.wait(BEAT):
            actors.tell(words, "alive", name)

    thread = threading.Thread(target=beat, name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def logged(handler: logging.Handler) -> Iterator[None]:
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
