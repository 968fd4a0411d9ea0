"""Processes that a program starts itself on its own machine, and starts anew when they die: the workers of ``--single``
and ``--num-workers``, the NES masters of a search."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Self

from outer.machine import ExchangeError

log = logging.getLogger("envolve")

SCRIPT = Path(__file__).resolve().parent.parent / "GTN_worker.py"
QUICK_SECONDS = 10.0  # a worker that died sooner than this after its start counts as one that cannot start
MAX_QUICK_DEATHS = 10  # in a row
MAX_DELAY = 10.0  # seconds between a death and the next start, at most
STOP_SECONDS = 3.0  # from SIGTERM to SIGKILL: a worker inside a compiled kernel does not hear the first


@dataclass
class _Local:
    id: int
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_again_at: float | None = None
    quick_deaths: int = 0


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
        self._command, self._what, self._stop_seconds = command, what, stop_seconds
        log_dir, ids = Path(log_dir), range(first_id, first_id + count)
        self._locals = [_Local(i, log_dir / f"{what.replace(' ', '_')}_{i}.log") for i in ids]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        try:
            for local in self._locals:
                self._start(local)
        except BaseException:
            self.close()
            raise

    def pids(self) -> list[int]:
        """Of the processes that run."""
        return [w.process.pid for w in self._locals if w.process is not None and w.process.poll() is None]

    def _start(self, local: _Local) -> None:
        try:
            local.log_path.parent.mkdir(parents=True, exist_ok=True)
            with open(local.log_path, "ab") as output:
                # A session of its own: Ctrl-C in the terminal reaches the master alone, which then ends the workers.
                local.process = subprocess.Popen(
                    self._command(local.id), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as e:
            raise ExchangeError(
                f"cannot start {self._what} {local.id} with its output in {local.log_path}: {e.strerror}"
            ) from e
        local.started_at, local.start_again_at = time.monotonic(), None

    def poll(self) -> None:
        """Starts workers that died anew, the later the more often it happened.

        Raises :class:`ExchangeError` when none is left that can be started.
        """
        now = time.monotonic()
        for local in self._locals:
            if local.process is not None and local.process.poll() is not None:
                self._mourn(local, local.process.returncode, now)
            if local.start_again_at is not None and now >= local.start_again_at:
                self._start(local)
        if self._locals and all(w.process is None and w.start_again_at is None for w in self._locals):
            last_words = _tail(self._locals[0].log_path)
            raise ExchangeError(f"no local {self._what} can be started; the last words of one of them:\n{last_words}")

    def _mourn(self, local: _Local, code: int, now: float) -> None:
        local.process = None
        local.quick_deaths = local.quick_deaths + 1 if now - local.started_at < QUICK_SECONDS else 0
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        if local.quick_deaths >= MAX_QUICK_DEATHS:
            log.error(
                "%s %d ended %s, %d times in a row; it is not started again. See %s",
                self._what,
                local.id,
                how,
                local.quick_deaths,
                local.log_path,
            )
            return
        delay = min(0.1 * 2**local.quick_deaths, MAX_DELAY)
        local.start_again_at = now + delay
        text = "%s %d ended %s; starting it again. Its output is in %s"
        log.warning(text, self._what, local.id, how, local.log_path)

    def wait(self, seconds: float) -> None:
        """For those that were told to end and do so themselves."""
        deadline = time.monotonic() + seconds
        for local in self._locals:
            if local.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    local.process.wait(timeout=max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Ends all of them: SIGTERM, and SIGKILL to whoever has not ended after a few seconds."""
        running = [w.process for w in self._locals if w.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + self._stop_seconds
        for process in running:
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for local in self._locals:
            local.process = local.start_again_at = None


class LocalWorkers(LocalProcesses):
    """``GTN_worker.py`` ``count`` times, for the master with BOHB-ID ``bohb_id``. ``script`` and ``extra_args`` replace
    and extend the command, for tests."""

    def __init__(
        self,
        count: int,
        sync_dir: str | os.PathLike[str],
        bohb_id: int,
        log_dir: str | os.PathLike[str],
        *,
        first_id: int = 0,
        script: str | os.PathLike[str] = SCRIPT,
        extra_args: tuple[str, ...] = (),
    ) -> None:
        options = ("--sync-dir", os.fspath(sync_dir), "--parent-pid", str(os.getpid()), *extra_args)
        super().__init__(
            count, lambda i: [sys.executable, os.fspath(script), str(bohb_id), str(i), *options], log_dir,
            first_id=first_id,
        )  # fmt: skip


def _tail(path: Path, lines: int = 20) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return f"({path} cannot be read)"
