"""How commands hear Ctrl-C and SIGTERM: short programs that go through the same door, in processes of their own."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envolve.core import interrupt, listener
from envolve.core.reader_gone import PIPE_CODE
from tests.outer.small import ROOT

BEGIN = "import sys, time, os\nfrom envolve.core import interrupt, listener\ninterrupt.listen('prog.py'{limit})\n"
SLEEPER = "subprocess.Popen(['sleep', '600']{session})"
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
SIGNALS = [signal.SIGINT, signal.SIGTERM]


class Program:
    """A Python program; ``ready`` returns when it has printed "ready"."""

    def __init__(self, code: str, limit: float | None = None) -> None:
        begin = BEGIN.format(limit="" if limit is None else f", {limit}")
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", begin + code],
            cwd=ROOT,
            env=ENVIRON,
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ready(self) -> Program:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", (line, self.process.stderr and self.process.stderr.read())
        return self

    def end(self, *signals: int) -> tuple[int, str, str]:
        for number in signals:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def program() -> Iterator[type[Program]]:
    started: list[Program] = []

    class Known(Program):
        def __init__(self, code: str, limit: float | None = None) -> None:
            super().__init__(code, limit)
            started.append(self)

    yield Known
    for one in started:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()
        for stream in (one.process.stdout, one.process.stderr):
            if stream is not None:
                stream.close()


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def vanish(pids: list[int]) -> bool:
    """The kernel takes a moment to end who was killed."""
    until = time.monotonic() + 30
    while any(map(runs, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(runs, pids))


@pytest.mark.parametrize("number", SIGNALS)
def test_while_modules_are_imported_it_ends_at_once(program: type[Program], number: int) -> None:
    """Also if the import would swallow what is raised."""
    code = "print('ready', flush=True)\ntry: time.sleep(600)\nexcept BaseException: time.sleep(600)"
    assert program(code).ready().end(number) == (128 + number, "", f"prog.py: stopped; {interrupt.AGAIN}\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_main_is_left_in_order_and_the_line_says_how_to_go_on(program: type[Program], number: int) -> None:
    code = """
def main():
    interrupt.advise("continue with: it")
    try:
        print("ready", flush=True)
        time.sleep(600)
    except interrupt.Stopped as e:
        print("written", e.signum)
        raise
interrupt.run(main)
"""
    said = "prog.py: stopped; continue with: it\n"
    assert program(code).ready().end(number, number) == (128 + number, f"written {int(number)}\n", said)


# what does not end by itself: a call that never comes back to the interpreter, and cleaning up that hangs
STUCK = {
    "a call": "mutex = bytes(64); [ctypes.CDLL(None).pthread_mutex_lock(mutex) for _ in 'ab']",
    "swallowed": "while True:\n            try: time.sleep(600)\n            except BaseException: pass",
    "cleaning up": "try: time.sleep(600)\n        finally: lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a thread": "thread = threading.Thread(target=time.sleep, args=(600,)); thread.start(); time.sleep(600)",
}


@pytest.mark.parametrize("how", STUCK)
def test_what_does_not_end_is_ended_with_all_it_started(program: type[Program], how: str) -> None:
    code = f"""
import ctypes, subprocess, threading
def main():
        interrupt.advise("continue with: it")
        interrupt.at_forced_end(lambda: print("farewell", flush=True))
        interrupt.at_forced_end(lambda: 1 / 0)
        interrupt.at_forced_end(lambda: time.sleep(600))
        own = [{SLEEPER.format(session="")}, {SLEEPER.format(session=", start_new_session=True")}]
        own.append(subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True))
        print("ready", flush=True)
        print(*[p.pid for p in own], flush=True)
        {STUCK[how]}
interrupt.run(main)
"""
    one = program(code, limit=0.3).ready()
    assert one.process.stdout is not None
    pids = [int(word) for word in one.process.stdout.readline().split()]
    assert all(map(runs, pids))
    code_, out, err = one.end(signal.SIGTERM)
    assert (code_, err) == (143, "prog.py: stopped; continue with: it\n")
    assert out in ("farewell\n", "")  # "": it was on its way out, but for a thread
    assert vanish(pids)


def test_a_second_ctrl_c_does_not_wait(program: type[Program]) -> None:
    code = """
def main():
    print("ready", flush=True)
    while True:
        try: time.sleep(600)
        except BaseException: print("swallowed", flush=True)
interrupt.run(main)
"""
    one = program(code, limit=600.0).ready()
    assert one.process.stdout is not None
    one.process.send_signal(signal.SIGINT)
    one.process.stdout.readline()  # two that arrive at once would be one
    one.process.send_signal(signal.SIGTERM)
    time.sleep(3 * listener.TWICE)
    assert one.end(signal.SIGINT)[0] == 130


def test_one_ctrl_c_is_one_however_late_the_watch_hears_of_it(program: type[Program]) -> None:
    """The thread that watches has no core for longer than a second Ctrl-C takes, as on a busy machine."""
    code = f"""
read = os.read
def late(*args):
    time.sleep({3 * listener.TWICE})
    return read(*args)
os.read = late
def main():
    try: print("ready", flush=True); time.sleep(600)
    finally: time.sleep({6 * listener.TWICE}); print("cleaned up", flush=True)
interrupt.run(main)
"""
    assert program(code, limit=600.0).ready().end(signal.SIGINT)[:2] == (130, "cleaned up\n")


@pytest.mark.parametrize("ends", [True, False])
def test_gently_lets_a_phase_end_but_not_for_long(program: type[Program], ends: bool) -> None:
    code = f"""
listener.GENTLE = {600 if ends else 0.2}
def main():
    with interrupt.gently() as asked:
        print("ready", flush=True)
        while not asked() or not {ends}:
            time.sleep(0.01)
        print("phase ended")
    print("never")
interrupt.run(main)
"""
    out = "phase ended\n" if ends else ""
    said = f"prog.py: stopped; {interrupt.AGAIN}\n"
    assert program(code).ready().end(signal.SIGTERM) == (143, out, said)


def test_what_a_finalizer_swallows_is_raised_again(program: type[Program]) -> None:
    code = """
class Final:
    def __del__(self):
        print("ready", flush=True)
        time.sleep(600)
def main():
    Final()
    time.sleep(600)
interrupt.run(main)
"""
    said = f"prog.py: stopped; {interrupt.AGAIN}\n"
    assert program(code, limit=600.0).ready().end(signal.SIGINT) == (130, "", said)


def test_what_fails_on_the_way_out_is_in_the_line_and_a_bug_is_a_bug(program: type[Program]) -> None:
    code = "def main():\n  try: print('ready', flush=True); time.sleep(600)\n  finally: open('/no/such/file')\n"
    number, _, err = program(code + "interrupt.run(main)").ready().end(signal.SIGINT)
    assert number == 130 and re.fullmatch(r"prog.py: stopped \(FileNotFoundError: .*\); the same .*\n", err)
    number, _, err = program("interrupt.run(lambda: 1 // 0)").end()
    assert number == 1 and "Traceback" in err and "ZeroDivisionError" in err


def test_the_interpreters_own_end_is_not_stopped(program: type[Program], tmp_path: Path) -> None:
    code = f"""
class Last:
    def __del__(self):
        os.write(1, b"ready\\n")
        while not os.path.exists({str(tmp_path / "told")!r}):
            time.sleep(0.01)
last = Last()
interrupt.run(lambda: 7)
"""
    one = program(code).ready()
    one.process.send_signal(signal.SIGTERM)
    (tmp_path / "told").touch()
    assert one.end() == (7, "", "")


def test_a_signal_for_a_forked_child_is_not_ours(program: type[Program]) -> None:
    code = """
import signal, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: of a fork beside a thread
def main():
    pid = os.fork()
    if not pid:
        time.sleep(600)
    os.kill(pid, signal.SIGTERM)
    print("ready", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    time.sleep(0.5)
    return 7
interrupt.run(main)
"""
    assert program(code, limit=0.1).end() == (7, "ready -15\n", "")


def test_a_signal_between_fork_and_exec_is_silent(program: type[Program]) -> None:
    """Ctrl-C in a terminal reaches a child that has no session of its own yet."""
    code = """
import signal, subprocess
let_go = interrupt._let_go
def pending():
    os.kill(os.getpid(), signal.SIGINT)
    let_go()
interrupt._let_go = pending  # of the child; the parent's is registered already
def main():
    child = subprocess.Popen(["sleep", "600"], preexec_fn=lambda: None)
    print("ready", child.wait(), flush=True)
    return 7
interrupt.run(main)
"""
    assert program(code).end() == (7, "ready -2\n", "")


def test_a_child_is_deaf_where_it_was_asked_for(program: type[Program]) -> None:
    """Ctrl-C in a terminal reaches the whole group."""
    code = """
import subprocess
CHILD = "import time; print('ready', flush=True); time.sleep(600)"
def main():
    with interrupt.deaf_children():
        child = subprocess.Popen([sys.executable, "-S", "-c", CHILD])
    child.wait()
interrupt.run(main)
"""
    one = program(code).ready()
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.end() == (130, "", f"prog.py: stopped; {interrupt.AGAIN}\n")


@pytest.mark.parametrize("length", [300_000, 5])
def test_a_reader_that_goes_ends_it_silently(length: int) -> None:
    """`| head`: while it writes, or when what is left in the buffer is written at the end."""
    code = f"""
def main():
    try:
        print("ready", flush=True)
        sys.stdin.readline()
        print("x" * {length})
    except Exception as e:
        print("an error of the system", e, file=sys.stderr)
        return 1
    return 0
interrupt.run(main)
"""
    begin = BEGIN.format(limit="")
    with subprocess.Popen(
        [sys.executable, "-S", "-c", begin + code],
        cwd=ROOT,
        env=ENVIRON,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        assert process.stdout.readline() == "ready\n"
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.flush()
        assert (process.wait(60), process.stderr.read()) == (PIPE_CODE, "")


def test_a_full_disk_under_stdout_is_one_line() -> None:
    for length in (5, 300_000):
        code = BEGIN.format(limit="") + f"interrupt.run(lambda: print('x' * {length}) or 0)"
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-S", "-c", code]
            done = subprocess.run(command, cwd=ROOT, env=ENVIRON, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and re.fullmatch(r"[\w.: ]+: No space left on device\n", done.stderr), done.stderr


def test_without_listening_a_main_still_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    with interrupt.gently() as asked:
        assert not asked()
    interrupt.advise("nothing hears this")
    assert interrupt.stopped("prog.py", "go on") == 130
    assert capsys.readouterr().err == "prog.py: stopped; go on\n"


# ------------------------------------------------------------------------------------------------------ of all commands

# started by others, which end them; a model's code and a compiler run in them
NO_COMMANDS = {
    "agents/kernels/building/ahead.py", "agents/kernels/building/foreman.py", "envs/sim/isaac/isaacgym.py",
    "experiments/small_model_process.py", "llm/gym/guard.py", "llm/gym/jailed.py", "llm/gym/method.py",
    "llm/vetting/jail/jailed.py", "envs/outside/measure.py", "outer/auto/probe.py",
}  # fmt: skip
OWN_FOLDERS = ("tests", "benchmarks/", "slurm/test/")  # benchmarks: run.py starts and ends the others


def commands() -> list[Path]:
    found = [*ROOT.glob("*.py"), ROOT / "envolve/__main__.py"]
    for folder in ("agents", "distributed", "envs", "experiments", "llm", "outer", "slurm"):
        found += (ROOT / folder).rglob("*.py")
    found = [p for p in found if "__main__" in p.read_text() and not name(p).startswith(OWN_FOLDERS)]
    return [p for p in sorted(found) if name(p) not in NO_COMMANDS] + [ROOT / "benchmarks" / "run.py"]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_there_are_commands() -> None:
    some = {"GTN_master.py", "envolve/__main__.py", "distributed/programs/role.py", "slurm/submit.py"}
    assert some <= {name(p) for p in commands()}


@pytest.mark.parametrize("path", commands(), ids=name)
def test_every_command_goes_through_the_door(path: Path) -> None:
    """It listens before it imports anything but sys and pathlib, and run(main) is its last statement."""
    body = [n for n in ast.parse(path.read_text()).body if ast.unparse(n) != "from __future__ import annotations"]
    guarded = [isinstance(n, ast.If) and ast.unparse(n.test) == "__name__ == '__main__'" for n in body]
    guards = [i for i, yes in enumerate(guarded) if yes]
    assert len(guards) == 2 and guards[1] == len(body) - 1, "found other statements under __main__ than listen and run"
    first, last = (ast.unparse(n) for i in guards for n in body[i].body)  # type: ignore[attr-defined]
    assert first.startswith("interrupt.listen(") and last.startswith("interrupt.run(")
    before = [ast.unparse(n) for n in body[: guards[0]] if isinstance(n, (ast.Import, ast.ImportFrom))]
    assert set(before) <= {"import sys", "from pathlib import Path", "from envolve.core import interrupt"}


def test_the_door_itself_imports_nothing_slow() -> None:
    light_modules = ("command_table", "commands", "descendants", "listener", "memory", "reader_gone", "registry")
    for module in ("__init__", "interrupt", *light_modules):
        for node in ast.walk(ast.parse((ROOT / "core" / f"{module}.py").read_text())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for imported in [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]:
                    light = imported in sys.stdlib_module_names and imported not in ("ctypes", "logging")
                    assert light or imported.split(".")[-1] in light_modules


def test_no_command_handles_these_signals_itself() -> None:
    allowed = {"core/interrupt.py", "slurm/task.py", "slurm/single_node.py", "llm/vetting/jail/jailed.py"}
    for path in [*commands(), *(ROOT / "outer").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")]:
        if name(path) not in allowed:
            assert "signal.signal(" not in path.read_text(), name(path)
