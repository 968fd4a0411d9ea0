"""Processes that a program starts itself on its own machine, and starts anew when they die: the workers of ``--single``
and ``--workers``, the NES masters of a search."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from typing_extensions import Self

from envolve.core.child import Child, end, how
from envolve.outer.exchange.machine import ExchangeError

log = logging.getLogger("envolve")

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "worker.py"
MAX_QUICK_DEATHS = 10  # in a row
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
        self._what, self._stop_seconds = what, stop_seconds
        self._children = [
            Child(f"{what} {i}", partial(command, i), Path(log_dir) / f"{what.replace(' ', '_')}_{i}.log")
            for i in range(first_id, first_id + count)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        try:
            for child in self._children:
                self._start(child)
        except BaseException:
            self.close()
            raise

    def pids(self) -> list[int]:
        """Ids of the running processes."""
        return [pid for child in self._children if (pid := child.pid) is not None]

    def _start(self, child: Child) -> None:
        try:
            child.start()
        except OSError as e:
            raise ExchangeError(f"cannot start {child.name} with its output in {child.log_path}: {e.strerror}") from e

    def poll(self) -> None:
        """Restarts workers that died, with a growing delay.

        Raises :class:`ExchangeError` when none is left that can be started.
        """
        for child in self._children:
            if (code := child.ended()) is not None:
                self._mourn(child, code)
            if child.due():
                self._start(child)
        if self._children and all(c.process is None and c.start_at is None for c in self._children):
            words = self._children[0].last_words()
            raise ExchangeError(f"no local {self._what} can be started; last output of one of them:\n{words}")

    def _mourn(self, child: Child, code: int) -> None:
        delay = child.again()
        if child.quick_deaths >= MAX_QUICK_DEATHS:
            child.start_at = None
            text = "%s ended %s, %d times in a row; it is not started again. See %s"
            log.error(text, child.name, how(code), child.quick_deaths, child.log_path)
            return
        text = "%s ended %s; starting it again in %.1f s. Its output is in %s"
        log.warning(text, child.name, how(code), delay, child.log_path)

    def wait(self, seconds: float) -> None:
        """Waits for workers that were told to end by themselves."""
        deadline = time.monotonic() + seconds
        for child in self._children:
            if child.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(timeout=max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Ends all workers, and kills those that have not ended after a few seconds."""
        end(self._children, self._stop_seconds)


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
            count, lambda i: [sys.executable, os.fspath(script), str(bohb_id), str(i), *options], log_dir,
            first_id=first_id,
        )  # fmt: skip
