"""What a process that has locked itself up can still do. Every case runs in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from envolve.llm.vetting.jail import landlock, seccomp
from envolve.llm.vetting.jail import locks as jail

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=f"no jail here: {', '.join(jail.missing())}")

TRIES = """
import ctypes, json, os, resource, signal, socket, subprocess, sys, threading, time
from envolve.llm.vetting.jail import locks as jail
libc = ctypes.CDLL(None, use_errno=True)
protection = {lock}
def thread():
    done = []
    one = threading.Thread(target=done.append, args=(1,))
    one.start()
    one.join()
    return done
def calls(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "")
def forks():
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    return os.waitpid(pid, 0)[1] >> 8
def tells(f):
    try:
        return str(f())
    except BaseException as e:
        return type(e).__name__
tries = {tries}
json.dump({{name: tells(f) for name, f in tries.items()}}, sys.stdout)
"""


def python(script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it from the repository's root."""
    command, environ = [sys.executable, "-c", script, *words], {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ, timeout=60, check=False)


def tried(lock: str, **tries: str) -> dict[str, str]:
    """What becomes of each of these expressions after ``lock``: its value, or the class of what it raised."""
    text = "{" + ", ".join(f"{name!r}: lambda: {code}" for name, code in tries.items()) + "}"
    done = python(TRIES.format(lock=lock, tries=text), OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def call(name: str, arguments: str) -> str:
    return f"calls({seccomp._number(name)}, {arguments})"


def test_training_sees_and_changes_only_what_it_was_given(tmp_path: Path) -> None:
    given, mine, other = (tmp_path / name for name in ("given", "mine", "other"))
    for folder in (given, mine, other):
        folder.mkdir()
        (folder / "file").write_text("content")
    found = tried(
        f"jail.lock([{str(given)!r}], [{str(mine)!r}])",
        read=f"open('{given}/file').read()",
        read_mine=f"open('{mine}/file').read()",
        read_other=f"open('{other}/file').read()",
        list_other=f"os.listdir('{other}')",
        passwords="open('/etc/passwd')",
        write=f"open('{mine}/new', 'w').write('x')",
        write_given=f"open('{given}/file', 'a')",
        write_other=f"open('{other}/new', 'w')",
        remove_other=f"os.unlink('{other}/file')",
        move_out=f"os.rename('{mine}/file', '{other}/moved')",
        link=f"os.link('{other}/file', '{mine}/link')",
        symlink=f"os.symlink('/etc/passwd', '{mine}/symlink')",
        fifo=f"os.mkfifo('{mine}/fifo')",
        truncate=f"os.truncate('{other}/file', 0)",
        mode=f"os.chmod('{other}/file', 0o777)",
        times=f"os.utime('{other}/file', (0, 0))",
        environment="open('/proc/self/environ').read()",
    )
    assert found.pop("link") == "OSError"  # EXDEV, as if it were another disk
    allowed = {"read": "content", "read_mine": "content", "write": "1"}
    assert {name: said for name, said in found.items() if said != "PermissionError"} == allowed
    assert sorted(p.name for p in mine.iterdir()) == ["file", "new"]
    assert (other / "file").read_text() == "content"


def test_training_reaches_no_other_machine_process_or_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = tried(
            "jail.lock()",
            tcp=f"socket.create_connection(('127.0.0.1', {port}))",
            udp="socket.socket(2, 2)",
            unix="socket.socket(1)",
            pair="socket.socketpair()",
            program="subprocess.run(['true'])",
            execute="os.execv('/bin/true', ['true'])",
            fork="os.fork()",
            kill="os.kill(os.getppid(), 0)",
            group="os.killpg(0, 0)",
            signal=call("tgkill", "os.getppid(), os.getppid(), 0"),
            trace=call("ptrace", "16, os.getppid(), 0, 0"),
            ring=call("io_uring_setup", "1, 0"),
            limits="resource.setrlimit(resource.RLIMIT_CORE, (99, 99))",
            session="os.setsid()",
            nice="os.setpriority(os.PRIO_PROCESS, os.getppid(), 5)",
            root="os.setuid(0)",
            outlive=call("prctl", "1, 0"),
            namespaces=call("unshare", "0x10000000"),
            newer="calls(9999)",
            thread="thread()",
            numbers="sum(range(1000))",
            asks="resource.getrlimit(resource.RLIMIT_CORE)",
        )
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert found.pop("newer") == "OSError"  # ENOSYS
    assert found.pop("limits") in ("ValueError", "PermissionError")
    allowed = {"thread": "[1]", "numbers": "499500", "asks": "(0, 0)"}
    assert {name: said for name, said in found.items() if said != "PermissionError"} == allowed


def test_processes_may_be_allowed_and_are_as_locked_up() -> None:
    found = tried(
        "jail.lock(processes=True)",
        fork="forks()",
        program="os.execv('/bin/true', ['true'])",
        socket="socket.socket()",
        kill_outside="os.kill(os.getppid(), 0)",
    )
    assert found.pop("fork") == "7"
    assert set(found.values()) == {"PermissionError"}


@pytest.mark.parametrize(
    ("limit", "code", "said"),
    [
        ("memory=64 << 20", "len(bytearray(200 << 20))", "MemoryError"),
        ("memory=400 << 20", "len(bytearray(200 << 20))", str(200 << 20)),
        ("file_bytes=1000, write=['@']", "open('@/f', 'wb', buffering=0).write(bytes(5000))", "1000"),
        ("file_bytes=1000, write=['@']", "[open('@/g', 'ab', 0).write(bytes(900)) for _ in range(3)]", "OSError"),
    ],
)
def test_limits(tmp_path: Path, limit: str, code: str, said: str) -> None:
    limit, code = (text.replace("@", str(tmp_path)) for text in (limit, code))
    assert tried(f"jail.lock({limit})", it=code) == {"it": said}


def test_cpu_time_is_counted_from_the_lock() -> None:
    script = (
        "import resource, time\nfrom envolve.llm.vetting.jail import locks as jail\n"
        "while time.process_time() < 1.05:\n    pass\n"
        "jail.lock(cpu_seconds=3)\nprint(resource.getrlimit(resource.RLIMIT_CPU))"
    )
    done = python(script)
    assert done.stdout == "(4, 5)\n", done.stderr  # SIGXCPU, then SIGKILL


def test_tracing_can_compute_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    found = tried(
        "jail.lock_tracing(1 << 40, 5)",
        read=f"open('{tmp_path}/file')",
        itself="open('/proc/self/status')",
        library="open(json.__file__)",
        write=f"open('{tmp_path}/new', 'w')",
        stat=f"os.stat('{tmp_path}')",
        folder="os.listdir('/')",
        fork="os.fork()",
        socket="socket.socket()",
        kill="os.kill(os.getpid(), 0)",
        program="os.execv('/bin/true', ['true'])",
        sleep="time.sleep(0)",
        pipe="os.pipe()",
        limits="resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
        parent="os.getppid()",
        outlive=call("prctl", "1, 0"),
        numbers="sum(range(1000))",
        memory="len(bytearray(10**7))",
        clock="time.monotonic() > 0",
    )
    assert found.pop("limits") in ("ValueError", "PermissionError")
    found.pop("parent")  # a number that glibc may know without asking
    allowed = {"numbers": "499500", "memory": "10000000", "clock": "True"}
    assert {name: said for name, said in found.items() if said != "PermissionError"} == allowed


def test_a_process_with_threads_is_refused() -> None:
    started = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    script = f"import threading\nfrom envolve.llm.vetting.jail import locks as jail\n{started}\njail.lock()\n"
    done = python(script)
    assert "JailError" in done.stderr and "one thread" in done.stderr


@pytest.mark.parametrize("layer", ["landlock.abi = lambda: 0", "seccomp.available = lambda: False"])
def test_without_a_layer_it_fails_closed_and_opts_out_aloud(layer: str) -> None:
    lock = "print(jail.lock(allow_unprotected=len(sys.argv) > 1))"
    script = f"import sys\nfrom envolve.llm.vetting.jail import locks as jail, landlock, seccomp\n{layer}\n{lock}"
    name = "Landlock" if "landlock" in layer else "seccomp"
    for refused in (python(script), python(script, **{jail.OPT_OUT: "0"})):
        assert refused.returncode == 1 and jail.OPT_OUT in refused.stderr
        assert f"JailError: code that somebody else wrote cannot be locked up here: no {name}" in refused.stderr
    for out in (python(script, "opt out"), python(script, **{jail.OPT_OUT: "1"})):
        assert out.returncode == 0 and f"without {name}" in out.stdout
        assert f"no {name}" in out.stderr  # the warning


def test_the_environment_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "SSH_AUTH_SOCK", "PATH_TOKEN"):
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("LANG", "C.UTF-8")
    kept = jail.scrubbed(PYTHONPATH="here")
    assert "hush" not in kept.values()
    assert kept["PATH"] == os.environ["PATH"] and kept["LANG"] == "C.UTF-8" and kept["PYTHONPATH"] == "here"
    assert kept["HOME"] != os.environ.get("HOME") and kept["OMP_NUM_THREADS"] == "1"


def test_what_it_says_of_itself() -> None:
    assert str(jail.Protection(6, True)) == "Landlock 6, seccomp"
    assert str(jail.Protection(0, True, ("Landlock",))) == "seccomp; without Landlock"
    assert str(jail.Protection(0, False)) == "nothing"


def test_needed_to_import_is_enough_to_import() -> None:
    imports = "import numpy, sqlite3, unittest.mock"
    done = python(
        "from envolve.llm.vetting.jail import locks\nlocks.lock(locks.needed_to_import())\n"
        f"{imports}\nprint(numpy.ones(2).sum())",
        OPENBLAS_NUM_THREADS="1",
    )
    assert done.stdout == "2.0\n", done.stderr


# ----------------------------------------------------------------------------------------------------------- the filter


def verdict(program: list[seccomp.Instruction], number: int, *arguments: int, machine: int | None = None) -> int:
    """What the kernel would do, by a small machine for the instructions that we use."""
    column_machine = seccomp.MACHINES[platform.machine()][1] if machine is None else machine
    words = {0: number, 4: column_machine}
    for i in range(6):
        value = arguments[i] if i < len(arguments) else 0
        words[16 + 8 * i], words[20 + 8 * i] = value & 0xFFFFFFFF, value >> 32
    at, loaded = 0, 0
    while True:
        code, yes, no, k = program[at]
        at += 1
        if code == seccomp.RETURN:
            return k
        if code == seccomp.LOAD:
            loaded = words[k]
            continue
        met = {seccomp.EQUAL: loaded == k, seccomp.AT_LEAST: loaded >= k, seccomp.ANY_BIT: bool(loaded & k)}[code]
        at += yes if met else no


@pytest.mark.parametrize("machine", list(seccomp.MACHINES))
def test_filters_of_both_machines(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    column = seccomp.MACHINES[machine][0]
    tracing, training, forking = seccomp.tracing(), seccomp.training(False, False), seccomp.training(True, True)
    for name, numbers in seccomp.CALLS.items():
        number = numbers[column]
        if number is None:
            continue
        computing = name in seccomp.COMPUTING
        assert verdict(tracing, number) == (seccomp.ALLOW if computing else seccomp.REFUSE), name
        if computing:
            assert verdict(training, number) == seccomp.ALLOW, name
        if name in seccomp.DENIED:
            assert verdict(training, number) == verdict(forking, number) == seccomp.REFUSE, name

    def calls(name: str) -> int:
        return seccomp.CALLS[name][column] or 0

    thread, fork, namespace = 0x3D0F00, 0x1200011, 0x1200011 | 0x20000000
    assert [verdict(training, calls("clone"), flags) for flags in (thread, fork, namespace)] == [
        seccomp.ALLOW,
        seccomp.REFUSE,
        seccomp.REFUSE,
    ]
    assert [verdict(forking, calls("clone"), flags) for flags in (thread, fork, namespace)] == [
        seccomp.ALLOW,
        seccomp.ALLOW,
        seccomp.REFUSE,
    ]
    assert verdict(training, calls("clone3")) == seccomp.UNKNOWN == verdict(training, 9999)
    assert verdict(training, calls("kill")) == seccomp.REFUSE and verdict(forking, calls("kill")) == seccomp.ALLOW
    assert verdict(training, calls("tgkill"), os.getpid()) == seccomp.ALLOW
    assert verdict(training, calls("tgkill"), 1) == seccomp.REFUSE
    assert verdict(training, calls("prlimit64"), 0, 7, 0) == seccomp.ALLOW
    assert verdict(training, calls("prlimit64"), 0, 7, 1 << 32) == seccomp.REFUSE
    assert verdict(training, calls("prlimit64"), 0, 7, 8) == seccomp.REFUSE
    assert verdict(training, calls("prctl"), 15) == seccomp.ALLOW
    assert verdict(training, calls("prctl"), 1) == seccomp.REFUSE
    assert verdict(training, calls("ioctl"), 0, 0x5412) == seccomp.REFUSE
    assert verdict(training, calls("ioctl"), 0, 0x5401) == seccomp.ALLOW
    for program in (tracing, training):
        assert verdict(program, 0, machine=0x40000003) == seccomp.KILL  # 32-bit x86
        if machine == "x86_64":
            assert verdict(program, seccomp.X32 + 1) == seccomp.KILL


@pytest.mark.parametrize(
    ("header", "column"),
    [("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", 0), ("/usr/include/asm-generic/unistd.h", 1)],
)
def test_numbers_are_those_of_the_kernel_s_headers(header: str, column: int) -> None:
    if not Path(header).exists():
        pytest.skip(f"no {header}")
    text = Path(header).read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    aliases = re.findall(r"#define __NR_(\w+) __NR3264_(\w+)", text)
    known |= {name: known[other] for name, other in aliases if other in known}
    wrong = {
        name: (ours[column], known[name])
        for name, ours in seccomp.CALLS.items()
        if name in known and ours[column] is not None and ours[column] != known[name]
    }
    assert not wrong
    assert len(set(seccomp.CALLS) & set(known)) > 100
    assert not [name for name, ours in seccomp.CALLS.items() if ours[column] is None and name in known]


def test_landlock_on_older_kernels_asks_for_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    assert landlock._bits(landlock.WRITE, 1) & (1 << landlock.TRUNCATE | 1 << landlock.REFER) == 0
    assert landlock._bits(landlock.WRITE, 3) & 1 << landlock.TRUNCATE
    assert landlock._bits(range(16), 4) == (1 << 15) - 1
