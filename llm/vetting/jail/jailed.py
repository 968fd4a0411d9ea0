"""The server in which code from models is run: a process of its own that imports torch once and forks a child per
candidate. The child locks itself up (``jail.lock_tracing``), traces, writes what it found to its pipe, and is gone.

Started by ``jailer.py``, which talks to it through stdin and stdout in frames (length, bytes): first the options (JSON)
and the probe, answered by "ready"; then candidates (JSON: number, code) to be run, or to be checked with what came of
that ("traced": checking.py). The answer is a line of JSON {"number", "reason": [stage, message] or null} and, after it,
the bytes of the child, which only the master and a child read, as what they are: untrusted. The server itself
never looks at them, runs no candidate's code and, once it has imported what it needs, has given up the file system. It
ends when stdin does.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import selectors
import signal
import struct
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

RESULT_BYTES = 1 << 20  # what a child may answer
MEMORY = 2 << 30  # bytes beyond what the server has
LOOK = 0.25  # s between two looks at what a child has had of a core, which decide: the clock says more of the machine
AWAKE = 0.001  # CPU time of a child that does something between two looks
FAR = 60  # times as long on the clock as of CPU time, and a child is ended for being there
OPEN_FILES = 256  # highest number of a file descriptor, and so how many children there can be
PR_SET_PDEATHSIG = 1
# What every task has: [n] "progress", [n, A] "action".
WARM_UP = """
def compute_reward(state):
    a, t = state["action"], state["progress"]
    weights = torch.tensor([1.0, -0.5])
    size = torch.linalg.norm(a, dim=-1) + torch.norm(a, dim=1) + torch.nn.functional.normalize(a, dim=-1).sum(dim=1)
    outer = torch.einsum("bi,bj->bij", a, a).mean(dim=(1, 2)) + torch.matmul(a, a.T.mean(dim=1))
    late = torch.where(t > 10.0, weights[0], weights[1]) * torch.clamp(t / 100.0, 0.0, 1.0)
    best = torch.max(a, dim=1).values + torch.stack([t, late], dim=1).std(dim=1)
    best = best + torch.sigmoid(t) + torch.atan2(t, t + 1)
    masked = torch.zeros_like(t)
    masked[t > 5] = 0.5
    total = torch.exp(-size / 0.25) + 0.1 * outer + late + best + masked + (a > 0).float().mean(dim=1)
    return total, {"late": late}
"""
WARM_UP_ERROR = """
def compute_reward(state):
    total = state["action"].sum(dim=1)
    return total + state["action"][:, 999] + torch.zeros(3)
"""


@dataclass
class Child:
    """One candidate at work."""

    number: int
    pid: int
    began: float  # on the clock
    looked: float  # at it last
    used: float = 0.0  # of CPU time, then
    idle: float = 0.0  # s of looks in a row up to then at which it had done nothing
    data: bytearray = field(default_factory=bytearray)


def main() -> int:
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    options = json.loads(receive(requests) or b"{}")
    Server(requests, answers, options, receive(requests) or b"").serve()
    return 0


class Server:
    """Forks children and passes on their output."""

    def __init__(self, requests: int, answers: int, options: dict[str, Any], probe: bytes) -> None:
        import torch

        torch.set_num_threads(1)  # a child has the thread that forked it and no other
        from envolve.llm.vetting.checking import check
        from envolve.llm.vetting.jail import landlock
        from envolve.llm.vetting.jail import locks as jail
        from envolve.llm.vetting.probe import Probe
        from envolve.llm.vetting.trace.tracer import trace_candidate

        self.requests, self.answers = requests, answers
        self.types, self.probe, self.trace = options["types"], Probe.from_bytes(probe), trace_candidate
        self.check = check
        self.allow_unprotected: bool = options["allow_unprotected"]
        self.seconds: float = options["seconds"]  # of doing nothing; of CPU time half as many, in whole seconds
        self.cpu_seconds = math.ceil(self.seconds / 2)
        self.lock = jail.lock_tracing
        self.pid, self.children = os.getpid(), selectors.DefaultSelector()
        warm_up(self.trace, self.check, self.probe)
        self.space = jail.address_space() + MEMORY
        if landlock.abi():
            landlock.restrict((), ())
        gc.collect()
        gc.freeze()  # what is here stays: children need not look at it
        send(answers, b"ready")

    def serve(self) -> None:
        """Serves until the master closes the pipe."""
        self.children.register(self.requests, selectors.EVENT_READ, None)
        while True:
            ready = self.children.select(self._patience())
            for key, _ in ready:
                if key.data is not None:
                    self._read(key.fd, key.data)
                    continue
                request = receive(self.requests)
                if request is None:
                    for fd, child in self._running():
                        self._end(fd, child, None)
                    return
                self._start(**json.loads(request))
            for fd, child in self._running():
                reason = self._look(child, time.monotonic())
                if reason:
                    self._end(fd, child, reason)

    def _running(self) -> list[tuple[int, Child]]:
        return [(key.fd, key.data) for key in self.children.get_map().values() if key.data is not None]

    def _patience(self) -> float | None:
        return LOOK if self._running() else None

    def _look(self, child: Child, now: float) -> str | None:
        """Reason to end this child. The kernel limits its CPU time; this check is for children that wait."""
        if now - child.looked < LOOK:
            return None
        used = cpu_time(child.pid)
        child.idle = child.idle + LOOK if used - child.used < AWAKE else 0.0
        child.used, child.looked = used, now
        if child.idle >= self.seconds:
            return f"it did nothing for {self.seconds:g} s"
        return f"it was not done after {FAR * self.seconds:g} s" if now - child.began >= FAR * self.seconds else None

    def _start(self, number: int, code: str, traced: str | None = None) -> None:
        """Starts a child. traced: output of another child to check; None: run the code."""
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._be_child(code, traced, into)
        os.close(into)
        now = time.monotonic()
        self.children.register(out, selectors.EVENT_READ, Child(number, pid, now, now))

    def _read(self, fd: int, child: Child) -> None:
        data = os.read(fd, 1 << 16)
        child.data += data
        if len(child.data) > RESULT_BYTES:
            self._end(fd, child, f"what came of it is larger than {RESULT_BYTES >> 20} MiB: too many operations")
        elif not data:
            self._end(fd, child, None)

    def _end(self, fd: int, child: Child, reason: str | None) -> None:
        """Kills a child and answers. reason: of the refusal, if it is known already."""
        self.children.unregister(fd)
        os.close(fd)
        os.kill(child.pid, signal.SIGKILL)
        _, status, used = os.wait4(child.pid, 0)
        if reason is None and not child.data:
            killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            # the kernel counts ticks for its signal, which a busy machine has more of than time
            if killed == signal.SIGXCPU or used.ru_utime + used.ru_stime >= 0.9 * self.cpu_seconds:
                reason = f"it took longer than {self.cpu_seconds} s of CPU time"
            elif killed not in (0, signal.SIGKILL):
                reason = f"it crashed ({signal.strsignal(killed)})"
            else:
                reason = "it ended without a result"
        head = {"number": child.number, "reason": reason and ["limits", reason]}
        send(self.answers, json.dumps(head).encode() + b"\n" + (b"" if reason else child.data))

    def _be_child(self, code: str, traced: str | None, into: int) -> NoReturn:
        """Runs in the child: from here on, everything may be under the control of the model's code."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self.pid:  # it died before that
                os._exit(1)
            os.dup2(1, 2)
            os.dup2(into, 3)
            os.closerange(4, OPEN_FILES)
            self.lock(self.space, self.cpu_seconds, self.allow_unprotected)
            work = self.trace if traced is None else partial(self.check, traced.encode())
            _write(3, run(work, code, self.types, self.probe))
        finally:
            os._exit(0)


def warm_up(trace: Any, check: Any, probe: Any) -> None:
    """Make torch and the tracer load what they load when first needed: a child cannot open a file. Raises what the
    tracer does if it cannot trace WARM_UP."""
    json.loads(run(trace, WARM_UP_ERROR, ["compute_reward"], probe))
    traced = run(trace, WARM_UP, ["compute_reward"], probe)
    found = json.loads(run(partial(check, traced), WARM_UP, ["compute_reward"], probe))
    if "error" in found:
        raise RuntimeError(f"the tracer refuses its own example: {found['error']}")


def run(work: Any, code: str, types: list[str], probe: Any) -> bytes:
    """Result of tracing or checking as JSON: {"graph": ...} or {"error": [stage, message]}."""
    from envolve.llm.vetting.text.extract import VetError

    try:
        return json.dumps({"graph": work(code, types, probe)}).encode()
    except VetError as e:
        error = [e.stage, e.message]
    except BaseException as e:
        error = ["trace", f"{type(e).__name__}: {e}"]
    return json.dumps({"error": error}).encode()


def cpu_time(pid: int) -> float:
    """CPU seconds used by a process; a growing number if unknown."""
    if sys.platform != "linux":
        return time.monotonic()
    try:
        return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) says, for which Python has no name
    except OSError:  # it has ended
        return math.inf


def receive(fd: int) -> bytes | None:
    """Next frame; None: the other side is gone."""
    head = _read_exactly(fd, 4)
    return None if head is None else _read_exactly(fd, struct.unpack("<I", head)[0])


def send(fd: int, data: bytes | bytearray) -> None:
    """Writes a frame. Raises BrokenPipeError."""
    _write(fd, struct.pack("<I", len(data)) + data)


def _read_exactly(fd: int, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        part = os.read(fd, size - len(data))
        if not part:
            return None
        data += part
    return data


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


if __name__ == "__main__":
    sys.exit(main())
