"""Keeps the processes of a run alive: starts one per role, and starts a role that died again, alone.

An exit code says what a role meant: DONE, its work is done, and once that holds for the role that decides (the learner)
the others are ended; WRONG, trying again does not help; anything else, and any signal, is a death. Linux.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outer.local_workers import MAX_DELAY, QUICK_SECONDS

log = logging.getLogger("envolve")

DONE, FAILED, WRONG, STOPPED = 0, 1, 2, 130  # of roles, and of Supervisor.run
POLL = 0.05  # s
STOP_SECONDS = 30.0  # from SIGTERM to SIGKILL: a learner writes a checkpoint in between
MAX_QUICK_DEATHS = 10  # in a row, by the role's own fault
MAX_QUICK_KILLS = 50  # in a row, by a signal: somebody else's, but memory that is too small is one, too
LAST_WORDS = 20  # lines
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Role:
    """A process that should run. ``command`` is run again after a death, and goes on from what the last one left."""

    name: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)  # beside this process's
    cpus: Collection[int] | None = None  # None: all of this process's
    decides: bool = False  # the run is done when it is


@dataclass
class _Running:
    role: Role
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float | None = 0.0  # None: not again
    quick_deaths: int = 0
    deaths: int = 0
    code: int | None = None  # of one that ended for good


class Supervisor:
    """Output of a role goes to ``<log_dir>/<name>.log``. Ctrl-C and SIGTERM (as KeyboardInterrupt) end all roles."""

    def __init__(
        self,
        roles: Sequence[Role],
        log_dir: str | os.PathLike[str],
        *,
        quick_seconds: float = QUICK_SECONDS,
        first_delay: float = 0.1,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        """quick_seconds: who dies sooner after a start waits twice as long as the last time, from first_delay s on."""
        names = [role.name for role in roles]
        if len(set(names)) < len(names) or not any(role.decides for role in roles):
            raise ValueError(f"found the roles {', '.join(names)}, expected names of their own, and one that decides")
        self._running = {role.name: _Running(role, Path(log_dir) / f"{role.name}.log") for role in roles}
        self._quick_seconds, self._first_delay, self._stop_seconds = quick_seconds, first_delay, stop_seconds
        self._libc = ctypes.CDLL(None)

    def pids(self) -> dict[str, int]:
        """Of the roles that run."""
        return {
            name: r.process.pid
            for name, r in self._running.items()
            if r.process is not None and r.process.poll() is None
        }

    def deaths(self) -> dict[str, int]:
        """How often each role died so far."""
        return {name: r.deaths for name, r in self._running.items()}

    def run(self, watch: Callable[[], None] = lambda: None) -> int:
        """To the end -> DONE, FAILED, WRONG, or STOPPED, when the same roles, started again, go on. ``watch`` is called
        at every look."""
        try:
            while (code := self.look()) is None:
                watch()
                time.sleep(POLL)
            return code
        except KeyboardInterrupt:
            log.warning("stopping: all roles are told to end")
            return STOPPED
        finally:
            self.close()

    def look(self) -> int | None:
        """Buries, starts -> the exit code, once all is over."""
        for running in self._running.values():
            if running.process is not None and running.process.poll() is not None:
                self._bury(running, running.process.returncode)
        over = [r for r in self._running.values() if r.code not in (None, DONE)]
        if over:
            log.error("%s", _last_words(over[0]))
            return WRONG if over[0].code == WRONG else FAILED
        if all(r.code == DONE for r in self._running.values() if r.role.decides):
            return DONE
        for running in self._running.values():
            if running.process is None and running.start_at is not None and time.monotonic() >= running.start_at:
                self._start(running)
        return None

    def _start(self, running: _Running) -> None:
        role, parent = running.role, os.getpid()

        def prepare() -> None:
            if role.cpus is not None:
                os.sched_setaffinity(0, role.cpus)
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # a supervisor that is killed leaves nobody behind
            if os.getppid() != parent:  # it has been in between
                os._exit(FAILED)

        running.log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(running.log_path, "ab") as output:
            # A session of its own: Ctrl-C in the terminal reaches this process alone, which then ends the roles.
            running.process = subprocess.Popen(
                list(role.command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, **role.environ}, start_new_session=True, preexec_fn=prepare,
            )  # fmt: skip
        running.started_at, running.start_at = time.monotonic(), None

    def _bury(self, running: _Running, code: int) -> None:
        assert running.process is not None
        _kill_group(running.process.pid)  # what it had started itself
        running.process = None
        name = running.role.name
        if code in (DONE, WRONG):
            running.code = code
            return
        running.deaths += 1
        lived = time.monotonic() - running.started_at
        running.quick_deaths = running.quick_deaths + 1 if lived < self._quick_seconds else 0
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        if running.quick_deaths >= (MAX_QUICK_KILLS if code < 0 else MAX_QUICK_DEATHS):
            running.code = FAILED
            log.error("%s ended %s, soon after its start, %d times in a row", name, how, running.quick_deaths)
            return
        delay = min(self._first_delay * 2**running.quick_deaths, MAX_DELAY)
        running.start_at = time.monotonic() + delay
        log.warning("%s ended %s; starting it again in %.1f s. Output: %s", name, how, delay, running.log_path)

    def close(self) -> None:
        """Ends all roles: SIGTERM, and SIGKILL to whoever has not ended in time; Ctrl-C meanwhile shortens that."""
        running = [r.process for r in self._running.values() if r.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + self._stop_seconds
        try:
            for process in running:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            pass
        for process in running:
            _kill_group(process.pid)
            process.wait()
        for r in self._running.values():
            r.process = r.start_at = None


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _last_words(running: _Running) -> str:
    name, path = running.role.name, running.log_path
    try:
        lines = path.read_text(errors="replace").splitlines()[-LAST_WORDS:]
    except OSError as e:
        lines = [f"({path}: {e.strerror})"]
    why = "arguments that do not go together" if running.code == WRONG else "it cannot be kept alive"
    return "\n".join([f"{name}: {why}; the end of {path}:", *lines])
