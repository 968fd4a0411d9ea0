"""Workers that the master starts itself, on its own machine: ``--single`` and ``--num-workers``."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

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


class LocalWorkers:
    """``count`` worker processes with ids ``first_id`` to ``first_id + count - 1``; their output goes to
    ``<log_dir>/worker_<id>.log``.

    Call :meth:`poll` now and then (as ``on_wait`` of the dispatcher): it starts workers that died anew.
    """

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
        self._sync_dir, self._bohb_id = os.fspath(sync_dir), bohb_id
        self._script, self._extra_args = os.fspath(script), extra_args
        self._locals = [_Local(i, Path(log_dir) / f"worker_{i}.log") for i in range(first_id, first_id + count)]

    def __enter__(self) -> LocalWorkers:
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
        command = [sys.executable, self._script, str(self._bohb_id), str(local.id)]
        command += ["--sync-dir", self._sync_dir, "--parent-pid", str(os.getpid()), *self._extra_args]
        try:
            local.log_path.parent.mkdir(parents=True, exist_ok=True)
            with open(local.log_path, "ab") as output:
                # A session of its own: Ctrl-C in the terminal reaches the master alone, which then ends the workers.
                local.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
        except OSError as e:
            raise ExchangeError(
                f"cannot start worker {local.id} with its output in {local.log_path}: {e.strerror}"
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
            raise ExchangeError(
                f"no local worker can be started; the last words of one of them:\n{_tail(self._locals[0].log_path)}"
            )

    def _mourn(self, local: _Local, code: int, now: float) -> None:
        local.process = None
        local.quick_deaths = local.quick_deaths + 1 if now - local.started_at < QUICK_SECONDS else 0
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        if local.quick_deaths >= MAX_QUICK_DEATHS:
            log.error(
                "worker %d ended %s, %d times in a row; it is not started again. See %s",
                local.id,
                how,
                local.quick_deaths,
                local.log_path,
            )
            return
        delay = min(0.1 * 2**local.quick_deaths, MAX_DELAY)
        local.start_again_at = now + delay
        log.warning("worker %d ended %s; starting it again. Its output is in %s", local.id, how, local.log_path)

    def close(self) -> None:
        """Ends all of them: SIGTERM, and SIGKILL to whoever has not ended after a few seconds."""
        running = [w.process for w in self._locals if w.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in running:
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for local in self._locals:
            local.process = local.start_again_at = None


def _tail(path: Path, lines: int = 20) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return f"({path} cannot be read)"
