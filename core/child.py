"""Supervised child processes on this machine, restarted when they die. The delay grows with every death soon after the
start. The caller decides what an exit code means and when to give up. Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from envolve.core.cleaning import one_line
from envolve.core.files import read_end

QUICK_SECONDS = 10.0  # s; a child that dies sooner after its start counts as unable to start
FIRST_DELAY, MAX_DELAY = 0.1, 10.0  # seconds between a death and the next start
TAIL, TAIL_BYTES = 20, 2**16  # lines, and bytes in which they are looked for
_PR_SET_PDEATHSIG = 1


class Child:
    """One child process. Call ``start``, then repeatedly ``ended``; after a death ``again``, and ``start`` once it is
    ``due``."""

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        log_path: Path,
        *,
        environ: Mapping[str, str] | None = None,
        cpus: Collection[int] | None = None,
        with_parent: bool = False,
        prepare: Callable[[], None] | None = None,
        quick_seconds: float = QUICK_SECONDS,
        first_delay: float = FIRST_DELAY,
        max_delay: float = MAX_DELAY,
    ) -> None:
        """command: called for the words of each start; output is appended to log_path. environ: added to this process's
        environment. cpus: CPUs that the child may use, None: all of this process's. with_parent: the child gets SIGTERM
        when this process is killed. prepare: called in the child before its program starts."""
        self.name, self.log_path, self.cpus = name, log_path, cpus
        self._command, self._environ, self._with_parent, self._prepare = command, environ or {}, with_parent, prepare
        self._quick_seconds, self._first_delay, self._max_delay = quick_seconds, first_delay, max_delay
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at, self.starts = 0.0, 0
        self.start_at: float | None = 0.0  # None: not again
        self.deaths, self.quick_deaths = 0, 0  # in all, and in a row

    @property
    def pid(self) -> int | None:
        """Process id of the child while it runs."""
        return None if self.process is None or self.process.poll() is not None else self.process.pid

    def due(self) -> bool:
        return self.process is None and self.start_at is not None and time.monotonic() >= self.start_at

    def start(self) -> None:
        """Starts the process. Raises OSError."""
        tie = ends_with_parent(signal.SIGTERM) if self._with_parent else None

        def prepare() -> None:
            if self.cpus is not None:
                os.sched_setaffinity(0, self.cpus)
            if tie is not None:
                tie()
            if self._prepare is not None:
                self._prepare()

        # Python between fork and exec is best avoided where there are threads
        needed = self.cpus is not None or self._with_parent or self._prepare is not None
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log_path, "ab") as output:
            # A session of its own: Ctrl-C in the terminal reaches this process alone, which then ends the others.
            self.process = subprocess.Popen(
                list(self._command()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environ},
                start_new_session=True,
                preexec_fn=prepare if needed else None,
            )
        self.started_at, self.start_at, self.starts = time.monotonic(), None, self.starts + 1

    def ended(self) -> int | None:
        """Exit code of a dead child, reported once; processes that it started are killed."""
        if self.process is None or self.process.poll() is None:
            return None
        code, pid = self.process.returncode, self.process.pid
        self.process = None
        _kill_group(pid)
        return code

    def again(self) -> float:
        """Schedules the restart after a death -> seconds until it is due."""
        self.deaths += 1
        quick = time.monotonic() - self.started_at < self._quick_seconds
        self.quick_deaths = self.quick_deaths + 1 if quick else 0
        delay = backoff(self.quick_deaths, self._first_delay, self._max_delay)
        self.start_at = time.monotonic() + delay
        return delay

    def last_words(self) -> str:
        """Last lines of the child's output."""
        try:
            lines = read_end(self.log_path, TAIL_BYTES).decode("utf-8", "replace").splitlines()[-TAIL:]
            return "\n".join(one_line(line) for line in lines)
        except OSError as e:
            return f"({self.log_path}: {e.strerror})"


def backoff(failures: int, first: float, most: float) -> float:
    """Seconds until the next start after ``failures`` in a row: ``first`` times 2^failures, at most ``most``."""
    return min(first * 2.0 ** min(failures, 60), most)


def ends_with_parent(signum: int = signal.SIGKILL, parent: int | None = None) -> Callable[[], None]:
    """Hook for a child between fork and exec, or at its beginning: it gets ``signum`` when ``parent`` (this process)
    dies, also if that has already happened. The starting thread counts as the parent, so it must outlive the child."""
    libc = ctypes.CDLL(None)  # not in the child: loading takes locks that another thread may have held
    pid = os.getpid() if parent is None else parent

    def tie() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signum)
        if os.getppid() != pid:  # it has been killed in between
            os._exit(1)

    return tie


def end_process(process: subprocess.Popen[Any], seconds: float) -> None:
    """Ends a session leader: SIGTERM, unless it has ended, and SIGKILL to the rest of its session after ``seconds``."""
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        pass
    _kill_group(process.pid)
    process.wait()


def end(children: Iterable[Child], seconds: float) -> dict[Child, int]:
    """Ends all children: SIGTERM, then SIGKILL to those still alive after the time limit, with everything that they
    started. Ctrl-C shortens the wait. No child is due afterwards. -> exit codes of those that ran."""
    children = list(children)
    running = {child: child.process for child in children if child.process is not None}
    for process in running.values():
        process.terminate()
    deadline = time.monotonic() + seconds
    try:
        for process in running.values():
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        pass
    codes = {}
    for child, process in running.items():
        _kill_group(process.pid)
        codes[child] = process.wait()
    for child in children:
        child.process = child.start_at = None
    return codes


def how(code: int) -> str:
    """Describes an exit code in words."""
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
