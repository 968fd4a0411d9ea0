"""What a process says while kernels are compiled for it, and where any process of the same user on this machine reads
it. Nothing here imports numba: a master shows what its workers wait for.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from envolve.agents.common.kernel_cache import cache_base, mark
from envolve.core.files import read_text
from envolve.core.places import IMPORTS

log = logging.getLogger("envolve")
STATE_BYTES = 10_000
EVERY = 10.0  # seconds between two lines of a log
# of agents/kernels/common/tasks.py and agents/kernels/tabular.py (tests/agents/test_compiling.py)
TASKS = ("CartPole-v0", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v0")
TABULAR = ("ql", "ql_cb", "sarsa", "sarsa_cb")  # these have kernels for every finite task
STEPS = "_steps"  # behind a learner's name: its kernels between steps that Python takes
_begun: Dict[str, subprocess.Popen] = {}  # by the name of the kernels that it compiles


def kernels_of(learner: str, task: str, apart: bool = False) -> str:
    """Name of the kernels that train ``learner`` on the task of this name, or in its worlds. apart: in a bandit whose
    agents are tested on the task after their training alone, which therefore needs no task."""
    return learner if apart or task in TASKS or learner in TABULAR else learner + STEPS


def _folder() -> Path:
    return cache_base() / "compiling"


class CompilingProgress:
    """One process's wait for the kernels of ``name``: lines in its log, and a file while it lasts.

    with CompilingProgress("ddqn") as progress:
        progress.of(2)   # so many kernels are compiled
        progress.done()  # one of them
        progress.tick()  # called often; says something at times
    """

    def __init__(self, name: str) -> None:
        self.name, self.began = name, time.monotonic()
        self.total, self.left = 0, 0
        self.waits = False  # for another process, which compiles
        self._since, self._said = time.time(), 0.0
        self._path = _folder() / f"{os.getpid()}.json"

    def __enter__(self) -> CompilingProgress:
        self._write()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._path.unlink()
        except OSError:
            pass

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def wait(self) -> None:
        self.waits = True
        say(f"{self.name} is being compiled by another process, once on this machine")
        self._write()

    def compile(self) -> None:
        self.waits = False
        say(f"compiling {self.name}, once on this machine")
        self._write()

    def of(self, total: int) -> None:
        self.total = self.left = total
        self._write()

    def done(self) -> None:
        self.left -= 1
        self._write()

    def tick(self) -> None:
        if self.seconds - self._said >= EVERY:
            self._said = self.seconds
            say(_words(self._state()))

    def _state(self) -> Dict[str, Any]:
        return {
            "name": self.name, "left": self.left, "total": self.total, "since": self._since, "waits": self.waits,
            "pid": os.getpid(), "parent": os.getppid(),
        }  # fmt: skip

    def _write(self) -> None:
        """Writes the state for readers; a failed write is no reason to stop."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            aside = self._path.with_suffix(".new")
            aside.write_text(json.dumps(self._state()))
            os.replace(aside, self._path)
        except OSError:
            pass


def say(text: str) -> None:
    """Into the log, or to stderr where the log does not show what is no warning: a wait must not be silent."""
    if log.isEnabledFor(logging.INFO):
        log.info("%s", text)
    else:
        print(text, file=sys.stderr, flush=True)


def under_way() -> Optional[str]:
    """What this process or one that it started waits for, in words; None if nothing is compiled for them."""
    found = []
    for path in _folder().glob("*.json"):
        try:
            state = json.loads(read_text(path, STATE_BYTES))
            if os.getpid() in (state["pid"], state["parent"]) and _alive(int(state["pid"])):
                found.append((bool(state["waits"]), float(state["since"]), _words(state)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # ended between two looks, or left by a process that was killed
    return min(found)[2] if found else None  # the compiling process knows how much is left


def begin(name: str) -> None:
    """Starts to compile in the background. A later ``beside`` for the same kernels takes the process over."""
    if not mark(name).exists():
        _begun[name] = _start(name)


@contextlib.contextmanager
def beside(name: str) -> Iterator[None]:
    """Compiles the kernels of this name in the background, while this process and those that it starts get ready. Does
    nothing if they are compiled. The process that needs them reports errors."""
    process = _begun.pop(name, None)
    while _begun:
        _end(_begun.popitem()[1])
    if process is None:
        if mark(name).exists():
            yield
            return
        process = _start(name)
    try:
        yield
    finally:
        _end(process)


def _start(name: str) -> subprocess.Popen:
    """Ends when this process does, or its standard input."""
    command = [sys.executable, "-m", "envolve.agents.kernels.building.ahead", name]
    return subprocess.Popen(
        command,
        cwd=IMPORTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end(process: subprocess.Popen) -> None:
    process.stdin.close()  # type: ignore[union-attr]
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()  # and what it has started ends with it
        process.wait()


def _words(state: Dict[str, Any]) -> str:
    left, total = int(state["left"]), int(state["total"])
    seconds = max(0.0, time.time() - float(state["since"]))
    if state["waits"]:
        return f"{state['name']} is being compiled by another process: {seconds:.0f} s so far"
    what = "starting" if not total else f"{left} of {total} kernel{'s' * (total != 1)} left" if left else "checking"
    return f"compiling {state['name']}: {what}, {seconds:.0f} s so far"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
