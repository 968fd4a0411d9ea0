"""The process that ``ahead.py`` starts: compiles the kernels of a learner, each in a process of its own, as many at a
time as there are cores; then one more loads them and calls each once. What it says is for ``ahead.py``: a line with the
number of kernels, one for each that is done, and at last the reason if it failed.

Its processes are copies of it, so that the libraries are imported once. It compiles nothing itself. It ends, and they
with it, as soon as its standard input does: the process that started it is no more.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import traceback
from typing import Callable, Dict, List, Optional

CPU_SECONDS = 900  # of one process; the longest takes 30 on the machine that this was written on
FAILED = 3  # exit code
UNKNOWN = "compiling failed"


def main(name: str, library: str = "") -> int:
    """library: "torch", to import it in any case."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, this process is to go and not the one that waits for it
    _end_with_parent()
    from envolve.agents.kernels.building.without_torch import NAME, NEED_NONE, pretend

    without = name in NEED_NONE and library != NAME
    try:
        reason = _build(name, pretend if without else _one_thread)
    except Exception:
        if not without:
            raise
        reason = UNKNOWN
    if reason == UNKNOWN and without:  # with this version of a library, the kernels' modules need torch
        os.execv(sys.executable, [sys.executable, "-m", "envolve.agents.kernels.building.foreman", name, NAME])
    if reason:
        print(reason, flush=True)
        return FAILED
    return 0


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _build(name: str, prepare: Callable[[], None]) -> Optional[str]:
    """The reason why it failed, or None."""
    prepare()
    from envolve.agents.kernels.building.shortest import parts

    jobs = parts(name)
    load_numba()  # once for all processes
    print(len(jobs), flush=True)
    reason = _side_by_side({part: _compiles(job) for part, job in jobs.items()}, lambda part: print(part, flush=True))
    return reason or _side_by_side({"check": lambda: _check(list(jobs.values()))}, lambda part: None)


def load_numba() -> None:
    """What numba only loads when it first compiles something, or looks for a cached kernel."""
    from numba.core.registry import cpu_target

    cpu_target.target_context.refresh()


def _compiles(job: Callable[[], None]) -> Callable[[], None]:
    def compile_it() -> None:
        from envolve.agents.kernels.building.frugal import be_frugal
        from envolve.agents.kernels.building.whole import compile_whole

        compile_whole()
        be_frugal()
        job()

    return compile_it


def _check(jobs: List[Callable[[], None]]) -> None:
    """Nothing may be left to compile: each process would, with other last bits."""
    from numba.core import event

    with event.install_recorder("numba:compile") as seen:
        for job in jobs:
            job()
    new = {e.data["dispatcher"].py_func.__qualname__ for _, e in seen.buffer if e.is_start}
    if new:
        raise RuntimeError(f"not found again in the cache: {', '.join(sorted(new))}")


def _side_by_side(jobs: Dict[str, Callable[[], None]], done: Callable[[str], None]) -> Optional[str]:
    """Each in a process; the reason why one failed, or None."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting = list(jobs)
    running: Dict[int, str] = {}
    while waiting or running:
        while waiting and len(running) < cores:
            part = waiting.pop(0)
            running[_start(jobs[part])] = part
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            if select.select([0], [], [], 0.02)[0] and not os.read(0, 1):
                os.killpg(0, signal.SIGKILL)
            continue
        part = running.pop(pid)
        if status:
            return _how(status)
        done(part)
    return None


def _start(job: Callable[[], None]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _end_with_parent()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        job()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _end_with_parent() -> None:
    """If that is killed. Linux; elsewhere the end of the standard input says it, once the libraries are imported."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _how(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return UNKNOWN
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return f"compiling took more than {CPU_SECONDS} s of CPU time"
    if number == signal.SIGKILL:
        return "the process that compiled was killed, perhaps for lack of memory"
    return f"the process that compiled crashed ({signal.Signals(number).name})"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
