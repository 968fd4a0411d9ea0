"""Commands in processes of their own that need not import anything: a copy of the tests' process becomes the command.

Importing torch costs a command three seconds before it does anything, and a test with a master, a worker and their
successors pays it four times. With the fixture ``warm`` (tests/conftest.py) a ``subprocess.Popen`` of one of Envolve's
programs forks instead of starting Python, and so do those that such a process starts. Everything else is real: its own
process id, session, signals, environment, files and exit code. What a start from nothing does, imports and signals
meanwhile among it, is shown by the slow tests: each test that asks for ``warm`` is there once more, with new processes.
No test of what a jail locks may ask for it: a copy of the tests' process has loaded more than a jail does.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import inspect
import logging
import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn

from envolve.core import commands, plugins

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {ROOT / "GTN_master.py", ROOT / "GTN_worker.py", ROOT / "tests" / "fake_worker.py"}
COMMANDS = ROOT / "experiments"
JAIL = "envolve.llm.vetting.jail.jailed"
FUZZER = "tests.experiments.fuzz_commands"
MODULES = {"envolve", "envolve.envs.outside.measure", "envolve.outer.auto.probe", FUZZER, JAIL}  # python -m
FILES = 4096  # more than a process of tests has open
LONG = 60  # seconds after which a copy that has become a jail says what it does, for one that never gets ready
_given = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


def program_of(words: Any) -> Callable[[], object] | None:
    """What a command runs, if it starts one of Envolve's scripts or modules in this Python; else None."""
    if not isinstance(words, (list, tuple)) or len(words) < 2 or words[0] != sys.executable:
        return None
    if "-m" in words[1:3]:
        at = words.index("-m") + 1
        return partial(_run_module, words[at], words[at:]) if words[at] in MODULES else None
    path = Path(os.fspath(words[1])).resolve()
    known = path in SCRIPTS or path.suffix == ".py" and COMMANDS in path.parents
    return partial(_run_script, path, words[1:]) if known else None


def _run_script(path: Path, words: Sequence[Any]) -> None:
    sys.argv = [os.fspath(word) for word in words]
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name="__main__")


def _run_module(name: str, words: Sequence[Any]) -> None:
    sys.argv = [os.fspath(word) for word in words]
    sys.path.insert(0, os.getcwd())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the tests may have imported it
        runpy.run_module(name, run_name="__main__", alter_sys=True)


class Warm(subprocess.Popen):
    """Forks where a script of Envolve's is started."""

    def _execute_child(self, *args: Any) -> None:
        given = _given.bind(self, *args).arguments
        program = program_of(given["args"])
        if program is None or given["shell"] or given["executable"] is not None:
            super()._execute_child(*args)  # type: ignore[misc]
            return
        pipes = {name: given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")}
        jail = JAIL in given["args"]
        if jail:
            _load_what_the_jail_does()
        pid = os.fork()
        if pid == 0:
            _become(program, given, LONG if jail else None)
        self.pid, self._child_created = pid, True
        self._close_pipe_fds(*pipes.values())  # type: ignore[attr-defined]


@lru_cache(maxsize=None)
def _load_what_the_jail_does() -> None:
    """Once for all jails: most of a jail's start is what torch loads when it is first traced."""
    from envolve.llm.vetting.checking import check
    from envolve.llm.vetting.jail.jailed import warm_up
    from envolve.llm.vetting.probe import make_probe
    from envolve.llm.vetting.trace.tracer import trace_candidate

    warm_up(trace_candidate, check, make_probe("Cartpole"))


def _become(program: Callable[[], object], given: dict[str, Any], long: float | None) -> NoReturn:
    code: Any = 1
    try:
        _as_if_started(given)
        if long is not None:
            faulthandler.dump_traceback_later(long)
        try:
            program()
            code = 0
        except SystemExit as e:
            code = e.code
            if code is not None and not isinstance(code, int):
                print(code, file=sys.stderr)
        except KeyboardInterrupt:
            traceback.print_exc()
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as Python does
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            traceback.print_exc()
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does at its end
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(0 if code is None else code & 0xFF if isinstance(code, int) else 1)


def _as_if_started(given: dict[str, Any]) -> None:
    """Makes the copy of the tests' process what a new one would be."""
    gc.freeze()  # garbage of the tests stays: what it waits for when it ends, threads among it, is not here
    faulthandler.disable()
    for target, name in enumerate(("p2cread", "c2pwrite", "errwrite")):
        if given[name] not in (-1, target):
            os.dup2(given[name], target)
    os.closerange(3, FILES)
    if given["cwd"] is not None:
        os.chdir(given["cwd"])
    if given["start_new_session"]:
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if given["preexec_fn"] is not None:
        given["preexec_fn"]()
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if given["env"] is not None:
        os.environ.clear()
        os.environ.update({os.fsdecode(key): os.fsdecode(value) for key, value in given["env"].items()})
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, closefd=False)  # type: ignore[misc]
    atexit._clear()  # what the tests' process does at its end
    warnings.resetwarnings()
    logging.disable(logging.NOTSET)
    logging.root.handlers, logging.root.level = [], logging.WARNING
    commands._started, commands._door = "", []
    of_users = sys.modules.get("envolve.outer.plugins")  # what the tests have run of them is unknown to a new process
    if of_users is not None:
        for kind, name in list(of_users._own):
            of_users.forget(kind, name)
    for kept in (plugins._sources, plugins._folders, plugins._never, plugins._contents):
        kept.clear()
