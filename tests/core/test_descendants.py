"""What this process has started ends with it, also what is being started at that moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.test_interrupt import runs, vanish
from tests.examples import some_slow
from tests.outer.small import ROOT
from tests.stopped import SESSION, stat_of

# starts a shell in a session of its own, lets it run for a while, kills it -> the shell's session
PROGRAM = """
import subprocess, sys, time
from envolve.core.descendants import kill_descendants
for pause in range(0, 30, 30 // int(sys.argv[1])):
    own = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # what is left would keep our pipes open
    shell = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600 & sleep 600"], start_new_session=True, **own)
    time.sleep(pause / 10_000)
    kill_descendants()
    print(shell.pid, flush=True)
"""


def of_session(session: int) -> list[int]:
    """Running processes of a session."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if (fields := stat_of(pid)) and int(fields[SESSION]) == session]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="descendants are found in /proc")
@pytest.mark.parametrize("moments", some_slow([10, 30], [10]))
def test_nothing_that_is_just_being_started_is_left(moments: int) -> None:
    """A shell is killed at so many moments of its first three milliseconds, in which it starts three programs."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, str(moments)], env=environ, capture_output=True, text=True, check=True
    )
    left = [pid for shell in done.stdout.split() for pid in of_session(int(shell))]
    try:
        assert len(done.stdout.split()) == moments
        assert vanish(left), [pid for pid in left if runs(pid)]
    finally:
        for pid in filter(runs, left):
            os.kill(pid, 9)
