"""A command that a copy of the tests' process becomes (tests/warm/processes.py) is what a new process would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.outer.small import default_sigint
from tests.warm import processes as warm_module

PROGRAM = """
import json, logging, os, signal, sys, threading
from pathlib import Path
from envolve.core import commands, interrupt, plugins

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("envolve").info("logged")
    print(json.dumps({
        "argv": sys.argv, "cwd": os.getcwd(), "env": os.environ.get("OWN"), "all": len(os.environ), "file": __file__,
        "pid": os.getpid(), "parent": os.getppid(), "leads": os.getsid(0) == os.getpid(),
        "listens": interrupt.listens(), "said": sys.stdin.read(),
        "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler, "main": threading.current_thread().name,
        "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "started": commands._started,
        "files": sorted(int(n) for n in os.listdir("/proc/self/fd"))[:3],
        "open": len(os.listdir("/proc/self/fd")), "executed": len(plugins._sources), "path": sys.path[0],
    }), flush=True)
    if "wait" in sys.argv:
        signal.pause()
    sys.exit(7)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    monkeypatch.setattr(warm_module, "SCRIPTS", {path.resolve()})
    return path


def start(script: Path, *words: str) -> subprocess.Popen[str]:
    environ = {"PATH": os.environ["PATH"], "OWN": "mine", "PYTHONPATH": str(warm_module.ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        cwd=script.parent,
        env=environ,
        start_new_session=True,
        preexec_fn=default_sigint,
    )


def seen(script: Path) -> tuple[dict[str, object], str, int]:
    """What the program said, on stderr too, and its exit code."""
    process = start(script, "one", "--two")
    out, err = process.communicate("asked", timeout=60)
    found = json.loads(out)
    assert found.pop("pid") == process.pid and found.pop("parent") == os.getpid()
    assert found.pop("open") <= 5  # its three, and the folder that is being listed; Python has another at times
    found.pop("all")  # a new Python adds LC_CTYPE
    return found, err, process.returncode


def test_it_is_what_a_new_process_is(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = seen(script)
    monkeypatch.setattr(subprocess, "Popen", warm_module.Warm)
    assert seen(script) == cold
    found, err, code = cold
    assert code == 7 and err == "logged\n" and found["env"] == "mine" and found["said"] == "asked"
    assert found["argv"] == [str(script), "one", "--two"] and found["leads"] and found["int"] and found["term"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_hears_and_dies(script: Path, signum: int, warm: None) -> None:
    process = start(script, "wait")
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    assert json.loads(process.stdout.readline())["pid"] == process.pid
    process.send_signal(signum)
    assert process.wait(60) == -signum
    assert process.stderr is not None
    assert ("KeyboardInterrupt" in process.stderr.read()) == (signum == signal.SIGINT)
    process.stdout.close()


def test_other_programs_are_started_as_always(warm: None) -> None:
    for words in (["true"], [sys.executable, "-c", "import sys; sys.exit('torch' in sys.modules)"]):
        assert warm_module.program_of(words) is None
        assert subprocess.run(words, check=False).returncode == 0


def test_a_slow_test_has_new_processes(warm: None, request: pytest.FixtureRequest) -> None:
    assert (subprocess.Popen is warm_module.Warm) == ("slow" not in request.keywords)
