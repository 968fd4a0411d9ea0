"""Has a learner's kernels compiled once, in processes of their own, before any process loads them from the disk.

The process that compiles a kernel can end up calling copies of inner functions that were optimised apart from the
kernel; a process that loads the cached kernel calls the copies within it. Where sums may be reordered the two differ in
the last bit, so the first worker's results would differ from all others'. It also keeps workers that start together
from compiling the same thing side by side, and a compiler that crashes or runs out of memory ends no other process:
LLVM 14 aborts where it meets what it cannot translate. ``foreman.py`` is what runs there.

Ctrl-C and SIGTERM end the compiling, and no one takes that for a failure.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Optional

from envolve.agents.common.compiling import CompilingProgress, say
from envolve.agents.common.kernel_cache import mark
from envolve.agents.kernels.building.foreman import FAILED, load_numba
from envolve.core.files import read_text
from envolve.core.locks import lock
from envolve.core.places import IMPORTS

CRASHED = "the process that compiled crashed"  # as foreman.py says it
_CHILD = "ENVOLVE_COMPILES"  # set in the environment of the processes that compile
REASON_BYTES = 10_000
_LOOK = 0.1  # seconds between two looks at what may have happened


class CannotCompile(ValueError):
    """There are no kernels of this learner on this machine, and why."""


def compiled_ahead(name: str) -> None:
    """Before the first use of learner ``name``'s compiled loop in this process. name: of ``registry.py``.
    Raises CannotCompile, KeyboardInterrupt."""
    reason = why_not(name)
    if reason is not None:
        raise CannotCompile(reason)


@functools.lru_cache(maxsize=None)
def why_not(name: str) -> Optional[str]:
    """Compiles the kernels of learner ``name`` unless they are. The reason why there are none, or None if there are.

    A crash is remembered on the disk: another try costs as much and ends the same. Other failures are for this process.
    """
    if os.environ.get(_CHILD):
        return None
    done = mark(name)
    if done.exists():
        return None
    done.parent.mkdir(parents=True, exist_ok=True)
    failed = done.with_suffix(".failed")
    lock = done.with_suffix(".lock")
    with CompilingProgress(name) as progress, _Signals() as signals, _locked(lock, progress, signals):
        if done.exists():  # another process was faster
            return None
        if failed.exists():
            return f"{_remembered(failed)} (remembered; delete {failed} to try again)"
        reason = _build(name, progress, signals)
        if reason is None:
            done.touch()
            say(f"compiled {name} in {progress.seconds:.0f} s")
        elif CRASHED in reason:
            failed.write_text(reason)
        return reason


def _remembered(failed: Path) -> str:
    try:
        return read_text(failed, REASON_BYTES)
    except OSError as e:
        return f"{failed}: {e.strerror}"


def _command(name: str) -> List[str]:
    return [sys.executable, "-m", "envolve.agents.kernels.building.foreman", name]


def _build(name: str, progress: CompilingProgress, signals: _Signals) -> Optional[str]:
    progress.compile()
    foreman: Any = None
    with tempfile.TemporaryFile() as errors:
        try:
            with signals.held():
                foreman = subprocess.Popen(
                    _command(name),
                    cwd=IMPORTS,
                    env={**os.environ, _CHILD: "1"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            _use_the_wait()
            lines = _follow(foreman, progress, signals)
        finally:
            if foreman is not None:
                _end(foreman)
        if foreman.returncode == 0:
            return None
        return f"{name} cannot be compiled on this machine: {_why(foreman.returncode, lines, errors)}"


def _end(foreman: Any) -> None:
    """With all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(foreman.pid, signal.SIGKILL)
    foreman.wait()
    for pipe in (foreman.stdin, foreman.stdout):
        pipe.close()


def _use_the_wait() -> None:
    """To load what takes a second when this process, if it is one that calls kernels, looks for the first of them."""
    if "numba" in sys.modules:
        load_numba()


def _follow(foreman: Any, progress: CompilingProgress, signals: _Signals) -> List[str]:
    """What it said until it ended. Raises KeyboardInterrupt."""
    out, said = foreman.stdout.fileno(), b""
    counted = 0
    while True:
        signals.unless_asked()
        progress.tick()
        if select.select([out], [], [], _LOOK)[0]:
            more = os.read(out, 4096)
            if not more:
                break
            said += more
            lines = said.split(b"\n")[:-1]
            for line in lines[counted:]:
                if line.isdigit():
                    progress.of(int(line))
                else:
                    progress.done()
            counted = len(lines)
    while foreman.poll() is None:
        signals.unless_asked()
        time.sleep(_LOOK / 10)
    return said.decode(errors="replace").splitlines()


def _why(code: int, lines: List[str], errors: IO[bytes]) -> str:
    """The reason in one line: what the foreman said, and the last line of the error output."""
    if code < 0:
        reason = f"{CRASHED} ({signal.Signals(-code).name})"
        if code == -signal.SIGKILL:
            reason = "the process that compiled was killed, perhaps for lack of memory"
    else:
        reason = lines[-1] if code == FAILED and lines else "compiling failed"
    errors.seek(0)
    words = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    llvm = [line for line in words if line.startswith("LLVM ERROR")]
    tail = (llvm or words)[-1:]
    return ": ".join([reason, *(line[:300] for line in tail)])


class _Signals:
    """Ctrl-C and SIGTERM while kernels compile. What the process does about them, it does at once; if that is to go on
    until something is finished, as in a training, then compiling is not what it means."""

    def __init__(self) -> None:
        self.asked = False  # the user wants this process to end
        self._before: Dict[int, Any] = {}  # handlers of the process, by signal
        self._held: Optional[List[int]] = None  # signals that came while they were held

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):  # else it is ignored or ends the process, and then its pipe ends the foreman
                    self._before[number] = handler
                    signal.signal(number, self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._hear:  # a handler may have put another in its place
                signal.signal(number, handler)

    def _hear(self, number: int, frame: Any) -> None:
        self.asked = True
        if self._held is None:
            self._before[number](number, frame)
        else:
            self._held.append(number)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Signals that come within wait for its end. ``Popen`` interrupted leaves a process that nobody knows."""
        self._held = []
        try:
            yield
        finally:
            late, self._held = self._held, None
        for number in late:
            self._before[number](number, None)

    def unless_asked(self) -> None:
        """Raises KeyboardInterrupt if the user wants this process to end, or if its main thread has."""
        if self.asked or not threading.main_thread().is_alive():
            raise KeyboardInterrupt


@contextlib.contextmanager
def _locked(path: Path, progress: CompilingProgress, signals: _Signals) -> Iterator[None]:
    """One process at a time, where the file system can lock."""
    with path.open("w") as file:
        while True:
            try:
                lock(file.fileno(), path)
                break
            except BlockingIOError:
                if not progress.waits:
                    progress.wait()
                    _use_the_wait()
                signals.unless_asked()
                progress.tick()
                time.sleep(_LOOK)
        yield


def main(name: str) -> None:
    """Beside a program that will need the kernels (``envolve.agents.common.compiling.beside``); ends when that does."""

    def end_with_it() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts it in the background ignores it
    threading.Thread(target=end_with_it, daemon=True).start()
    why_not(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
