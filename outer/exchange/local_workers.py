"""Processes that a program starts itself on its own machine, and starts anew when they die: the workers of ``--single``
and ``--workers``, the NES masters of a search."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from typing_extensions import Self

from envolve.core import commands
from envolve.core.child import Child
from envolve.core.environ import search_path
from envolve.core.supervisor import RestartPolicy, StartError, Supervisor
from envolve.outer.exchange.machine import ExchangeError

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "worker.py"
POLICY = RestartPolicy()
STOP_SECONDS = 2.2  # from SIGTERM to SIGKILL; a worker ends by itself within 1.5 s, but a process may be stopped


class LocalProcesses:
    """``count`` processes ``command(id)``, ids from ``first_id`` on, each with its output in
    ``<log_dir>/<what>_<id>.log``.

    Call :meth:`poll` now and then (as ``on_wait`` of the dispatcher): it starts those that died anew.
    """

    def __init__(
        self,
        count: int,
        command: Callable[[int], list[str]],
        log_dir: str | os.PathLike[str],
        *,
        what: str = "worker",
        first_id: int = 0,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        self._what = what
        environ = {"PYTHONPATH": search_path()}
        self._children = [
            Child(f"{what} {i}", partial(command, i), self._log(log_dir, i), environ=environ)
            for i in range(first_id, first_id + count)
        ]
        self._supervisor = Supervisor(dict.fromkeys(self._children, POLICY), stop_seconds)

    def _log(self, log_dir: str | os.PathLike[str], i: int) -> Path:
        return Path(log_dir) / f"{self._what.replace(' ', '_')}_{i}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def _look(self) -> None:
        try:
            self._supervisor.look()
        except StartError as e:
            raise ExchangeError(str(e)) from e

    def pids(self) -> list[int]:
        """Ids of the running processes."""
        return list(self._supervisor.pids().values())

    def poll(self) -> None:
        """Restarts workers that died, with a growing delay.

        Raises :class:`ExchangeError` when none is left that can be started.
        """
        self._look()
        if self._children and len(self._supervisor.codes) == len(self._children):
            words = self._children[0].last_words()
            raise ExchangeError(f"no local {self._what} can be started; last output of one of them:\n{words}")

    def wait(self, seconds: float) -> None:
        """Waits for workers that were told to end by themselves."""
        deadline = time.monotonic() + seconds
        for child in self._children:
            if child.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(timeout=max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Ends all workers, and kills those that have not ended after a few seconds."""
        self._supervisor.close()


def start_some(
    bohb_id: int, sync_dir: str | os.PathLike[str], plugins: str | os.PathLike[str] | None, free_id: int = 0
) -> str:
    """Shell command that starts workers of the master with BOHB-ID ``bohb_id``, in any folder. free_id: the first id
    that no worker has; plugins: as of :class:`LocalWorkers`."""
    words = [*commands.typed("GTN_worker.py"), str(bohb_id), str(free_id), "--sync-dir", os.path.abspath(sync_dir)]
    words += [] if plugins is None else ["--plugins", os.path.abspath(plugins)]
    return f"start some, one per core: {shlex.join(words)} &"


class LocalWorkers(LocalProcesses):
    """``envolve worker`` ``count`` times, for the master with BOHB-ID ``bohb_id``. ``plugins``: the folder whose files
    of the user's own they may execute. ``script`` and ``extra_args`` replace and extend the command, for tests."""

    def __init__(
        self,
        count: int,
        sync_dir: str | os.PathLike[str],
        bohb_id: int,
        log_dir: str | os.PathLike[str],
        *,
        first_id: int = 0,
        plugins: str | os.PathLike[str] | None = None,
        script: str | os.PathLike[str] = SCRIPT,
        extra_args: tuple[str, ...] = (),
    ) -> None:
        options = ("--sync-dir", os.fspath(sync_dir), "--parent-pid", str(os.getpid()), *extra_args)
        options += () if plugins is None else ("--plugins", os.path.abspath(plugins))
        super().__init__(
            count,
            lambda i: [sys.executable, os.fspath(script), str(bohb_id), str(i), *options],
            log_dir,
            first_id=first_id,
        )
