"""A command as a process that is stopped at a chosen moment, and everything that can then be wrong with its end."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envolve.core.child import ends_with_parent
from tests.outer.small import ROOT

PROMISED = 5.0  # seconds, on a machine that does nothing else
MARK = "ENVOLVE_TEST_MARK"
STATE, PARENT, SESSION, UTIME, STIME, START = 0, 1, 3, 11, 12, 19  # fields of /proc/PID/stat after the name
TICKS = os.sysconf("SC_CLK_TCK")
CTRL_C, INT, TERM = "Ctrl-C", "SIGINT", "SIGTERM"  # the first: to the whole group, as a terminal does
CODES = {CTRL_C: 130, INT: 130, TERM: 143}


def stat_of(pid: int) -> list[str]:
    """[]: there is none, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[STATE] in "ZX" else fields


def cpu_of(pid: int) -> float:
    """Seconds so far."""
    fields = stat_of(pid)
    return (int(fields[UTIME]) + int(fields[STIME])) / TICKS if fields else 0.0


@dataclass
class End:
    """How a command ended."""

    code: int
    seconds: float  # from the signal on
    load: float  # processes that want a core, per core
    out: str
    before: str  # stderr
    after: str  # from the signal on

    @property
    def said(self) -> list[str]:
        """The lines of the stop."""
        return [line for line in self.after.splitlines() if ": stopped" in line]

    @property
    def resume(self) -> list[str]:
        """The command that the line promises, as words; []: none."""
        found = re.search(r"with: (python3 .*)$", self.said[-1]) if self.said else None
        return shlex.split(found[1]) if found else []


class Command:
    """Started with output to files, in a session of its own, below ``cwd``."""

    def __init__(self, words: list[str], cwd: Path, environ: dict[str, str] | None = None) -> None:
        self.mark, self.cwd = uuid.uuid4().hex, cwd
        self.environ = {**os.environ, "OMP_NUM_THREADS": "1", MARK: self.mark, **(environ or {})}
        self.out, self.err = cwd / f"{self.mark}.out", cwd / f"{self.mark}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, *words],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.environ,
                start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGTERM),
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def text(self) -> str:
        return self.err.read_text(errors="replace") + self.out.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], object], seconds: float = 600.0) -> bool:
        """False if it ended before."""
        until = time.monotonic() + seconds
        while not condition():
            if not self.running:
                return False
            assert time.monotonic() < until, self.text()
            time.sleep(0.01)
        return True

    # ------------------------------------------------------------------------------------------------------- moments

    def hears(self) -> bool:
        """It handles SIGTERM."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return False
        found = re.search(r"SigCgt:\s*([0-9a-f]+)", status)
        return bool(found and int(found[1], 16) >> (signal.SIGTERM - 1) & 1)

    def cpu(self) -> float:
        """CPU seconds of this process alone: a clock that a busy machine does not change."""
        return cpu_of(self.process.pid)

    def compiles(self) -> bool:
        for pid in self.descendants():
            try:
                if b"agents.kernels." in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return True
            except OSError:
                continue
        return False

    # --------------------------------------------------------------------------------------------------------- the end

    def descendants(self) -> dict[int, str]:
        """Of this process -> when each started."""
        pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
        everybody = {pid: fields for pid in pids if (fields := stat_of(pid))}
        found = {self.process.pid}
        while more := {p for p, s in everybody.items() if int(s[PARENT]) in found} - found:
            found |= more
        return {pid: everybody[pid][START] for pid in found if pid in everybody and pid != self.process.pid}

    def marked(self) -> list[int]:
        """All that have this command's environment."""
        found = []
        for path in Path("/proc").iterdir():
            try:
                if path.name.isdigit() and self.mark.encode() in (path / "environ").read_bytes():
                    found += [int(path.name)] * bool(stat_of(int(path.name)))
            except OSError:
                continue
        return found

    def stop(self, how: str) -> End:
        """The signal, and what came of it. Whoever is left behind is killed here, and an AssertionError."""
        family, before = self.descendants(), self.err.read_text(errors="replace")
        began, load = time.monotonic(), os.getloadavg()[0] / (os.cpu_count() or 1)
        if how == CTRL_C:
            os.killpg(self.process.pid, signal.SIGINT)
        else:
            self.process.send_signal(getattr(signal, how))
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running 120 s after {how}") from None
        seconds = time.monotonic() - began
        out, after = self.out.read_text(errors="replace"), self.err.read_text(errors="replace")[len(before) :]
        end = End(self.process.returncode, seconds, load, out, before, after)
        orphans = self._left(family)
        assert not orphans, f"left behind: {orphans}"
        return end

    def _left(self, family: dict[int, str]) -> list[str]:
        """Those that have not vanished: the kernel takes a moment."""
        until = time.monotonic() + 10
        while True:
            own = {pid for pid, start in family.items() if (fields := stat_of(pid)) and fields[START] == start}
            left = own | set(self.marked())
            if not left or time.monotonic() > until:
                break
            time.sleep(0.05)
        words = []
        for pid in left:
            try:
                words.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        return words

    def kill(self) -> None:
        """If it still runs, with all that it started."""
        if not self.running:  # its number may be another's by now
            return
        for pid in [*self.descendants(), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        self.process.wait()


def check(end: End, how: str, prog: str) -> None:
    """One line, the exit code, no traceback, in time."""
    assert end.code == CODES[how], (end.code, end.after)
    assert "Traceback" not in end.before + end.after + end.out, end.before + end.after
    assert len(end.said) == 1 and end.said[0].startswith(f"{prog}: stopped"), end.after
    assert end.after.rstrip().splitlines()[-1] == end.said[0], end.after  # nothing is said after it
    assert end.seconds < PROMISED * max(1.0, end.load), f"{end.seconds:.1f} s, load {end.load:.1f} per core"


def script(path: str) -> str:
    return str(ROOT / path)
