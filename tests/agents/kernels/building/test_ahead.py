"""Kernels are compiled in processes of their own, once, and what any process computes with them is the same. Nothing
that happens there takes the process along that waits for them, and waiting is visible.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from envolve.agents.common import compiling
from envolve.agents.common.learners import LEARNERS, is_off_policy
from envolve.agents.kernels.building import ahead, without_torch
from envolve.agents.kernels.building.registry import kernels
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
from tests.agents.same import assert_same_bytes

ROOT = Path(__file__).parents[4]
CRASHES = "import os, sys; sys.stderr.write('LLVM ERROR: Cannot select: fmaximum\\n'); sys.stderr.flush(); os.abort()"
# compiles for ever, with a process of its own; writes their ids
SLEEPS = "import os, time; a = os.getpid(); b = os.fork() or os.getpid(); print(1, flush=True); {}; time.sleep(60)"


@pytest.fixture
def foreman(tmp_path, monkeypatch):
    """``program`` is run instead of compiling, and counted in ``runs``; ``forget()`` makes this a new process."""
    seen = SimpleNamespace(runs=[], program="print(1); print('training')", forget=ahead.why_not.cache_clear)

    def command(name):
        seen.runs.append(name)
        return [sys.executable, "-S", "-c", seen.program]

    monkeypatch.setenv("ENVOLVE_CACHE", str(tmp_path))
    monkeypatch.setattr(ahead, "mark", lambda name: tmp_path / "new" / f"{name}.compiled")
    monkeypatch.setattr(ahead, "_command", command)
    monkeypatch.delenv("ENVOLVE_COMPILES", raising=False)
    seen.forget()
    yield seen
    seen.forget()


def test_once_for_all_processes(foreman):
    for _ in range(2):
        ahead.compiled_ahead("ddqn")
        foreman.forget()
    assert foreman.runs == ["ddqn"]
    ahead.compiled_ahead("ppo")
    assert foreman.runs == ["ddqn", "ppo"]


def test_not_within_the_process_that_compiles(foreman, monkeypatch):
    monkeypatch.setenv("ENVOLVE_COMPILES", "1")
    ahead.compiled_ahead("ddqn")
    assert not foreman.runs


def test_a_failure_is_said_and_tried_again_by_the_next_process(foreman):
    said = "print(1); print('compiling failed'); sys.stderr.write('OSError: no space left')"
    foreman.program = f"import sys; {said}; sys.exit(3)"
    for tries in (1, 2):
        reason = ahead.why_not("ddqn")
        assert reason == "ddqn cannot be compiled on this machine: compiling failed: OSError: no space left"
        with pytest.raises(ahead.CannotCompile, match="no space left"):
            ahead.compiled_ahead("ddqn")
        assert len(foreman.runs) == tries, "once in each process"
        foreman.forget()


def test_a_crash_is_remembered_and_says_how_to_try_again(foreman, tmp_path):
    foreman.program = CRASHES
    first = ahead.why_not("ddqn")
    assert "SIGABRT" in first and first.endswith("LLVM ERROR: Cannot select: fmaximum") and "\n" not in first
    foreman.forget()
    again = ahead.why_not("ddqn")
    (remembered,) = (tmp_path / "new").glob("*.failed")
    assert again.startswith(first) and f"delete {remembered} to try again" in again and len(foreman.runs) == 1
    remembered.unlink()
    foreman.forget()
    foreman.program = "print(1)"
    assert ahead.why_not("ddqn") is None


def test_one_that_was_killed_may_have_lacked_memory_for_once(foreman, tmp_path):
    foreman.program = "import os; os.kill(os.getpid(), 9)"
    assert "killed, perhaps for lack of memory" in ahead.why_not("ddqn")
    assert not list((tmp_path / "new").glob("*.failed"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("handler", ["raises", "goes on"])
def test_a_signal_ends_what_compiles_and_is_no_failure(foreman, tmp_path, number, handler):
    """Also where the process means to finish something first, as a training that is stopped."""
    ids, heard = tmp_path / "ids", []
    foreman.program = SLEEPS.format(f"open({str(ids)!r}, 'a').write(str(os.getpid()) + ' ')")

    def hear(signum, frame):
        heard.append(signum)
        if handler == "raises":
            raise KeyboardInterrupt

    def send():
        while not ids.exists() or len(ids.read_text().split()) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    before = signal.signal(number, hear)
    try:
        threading.Thread(target=send).start()
        with pytest.raises(KeyboardInterrupt):
            ahead.why_not("ddqn")
        assert signal.getsignal(number) is hear
    finally:
        signal.signal(number, before)
    assert heard == [number]
    for process in map(int, ids.read_text().split()):
        ends(process)
    assert {p.suffix for p in (tmp_path / "new").iterdir()} == {".lock"} and compiling.under_way() is None
    foreman.program = "print(1)"
    assert ahead.why_not("ddqn") is None, "the interrupted try is not taken for a failure"


@pytest.mark.parametrize("handler", ["raises", "goes on"])
def test_a_signal_while_the_process_starts_ends_it_too(foreman, monkeypatch, handler):
    started, heard, popen = [], [], subprocess.Popen

    def hear(signum, frame):
        heard.append(signum)
        if handler == "raises":
            raise KeyboardInterrupt

    def interrupted(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)  # where Python calls the handler
        assert heard == []
        return started[0]

    foreman.program = "import time; time.sleep(60)"
    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.signal(signal.SIGTERM, hear)
    try:
        with pytest.raises(KeyboardInterrupt):
            ahead.why_not("ddqn")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM] and started[0].returncode == -signal.SIGKILL


def ends(pid: int) -> None:
    """A killed process takes a moment; one that lives for a minute more fails this. A zombie has ended."""
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still runs")


def test_waiting_is_visible(foreman, tmp_path, monkeypatch, caplog):
    """In the log of who waits, and for the process that started it."""
    caplog.set_level(logging.INFO, "envolve")
    monkeypatch.setattr(compiling, "EVERY", 0.01)
    go, seen = tmp_path / "go", []
    foreman.program = (
        f"import os, time\nprint(2, flush=True); print('a', flush=True)\nwhile not os.path.exists({str(go)!r}): "
        "time.sleep(0.01)\nprint('b')"
    )

    def look():
        while "1 of 2" not in caplog.text or not any("1 of 2" in text for text in seen):
            seen.append(compiling.under_way() or "")
            time.sleep(0.01)
        go.touch()

    thread = threading.Thread(target=look)
    thread.start()
    assert ahead.why_not("ddqn") is None
    thread.join()
    assert seen[-1].startswith("compiling ddqn: 1 of 2 kernels left, ") and seen[-1].endswith(" s so far")
    assert "compiling ddqn, once on this machine" in caplog.text
    assert "compiling ddqn: 1 of 2 kernels left" in caplog.text
    assert "compiled ddqn in " in caplog.text and compiling.under_way() is None


def test_it_is_said_where_no_log_is_shown(foreman, capsys):
    logging.getLogger("envolve").setLevel(logging.WARNING)
    try:
        ahead.compiled_ahead("ddqn")
    finally:
        logging.getLogger("envolve").setLevel(logging.NOTSET)
    assert "compiling ddqn, once on this machine" in capsys.readouterr().err


FOREMAN = """
import os, signal, sys, time
from envolve.agents.kernels.building import foreman
foreman.CPU_SECONDS = 1
def loop():
    while True: pass
def fail(): raise RuntimeError("no twin")
jobs = {"abort": os.abort, "fails": fail, "hangs": loop, "killed": lambda: os.kill(os.getpid(), 9), "works": lambda: 0}
for name, job in jobs.items():
    print(name, foreman._side_by_side({name: job}, lambda part: print("done", part)), flush=True)
def sleeps():
    print("sleeps", os.getpid(), flush=True)
    time.sleep(60)
foreman._side_by_side({"a": sleeps}, print)
"""


def test_the_foreman_outlives_what_it_starts_and_not_who_started_it():
    process = subprocess.Popen(
        [sys.executable, "-c", FOREMAN],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lines = [process.stdout.readline().strip() for _ in range(7)]
    assert lines[:6] == [
        "abort the process that compiled crashed (SIGABRT)",
        "fails compiling failed",
        "hangs compiling took more than 1 s of CPU time",
        "killed the process that compiled was killed, perhaps for lack of memory",
        "done works",
        "works None",
    ]
    assert lines[6].startswith("sleeps ")
    process.stdin.close()  # as if who started it had been killed
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert "RuntimeError: no twin" in process.stderr.read()
    ends(int(lines[6].split()[1]))
    process.stdout.close()
    process.stderr.close()


SCRIPT = """
import numpy as np, torch
from envolve.agents.kernels.off_policy import training as off_policy
from envolve.agents.common.sections import TD3DiscreteSection
from envolve.agents.train import train
from envolve.envs.section import EnvSection
from envolve.envs.task import make_task
section = TD3DiscreteSection(train_steps=60, init_episodes=0, test_episodes=1, hidden_size=16)
result = train("td3_discrete", section, None, make_task("CartPole-v0"), "real", EnvSection(), torch.zeros(1, 1),
               np.zeros(1, np.int64), backend="compiled")
print(len(off_policy.train.stats.cache_misses), result.weights.tobytes().hex())
"""


@pytest.mark.slow
def test_the_first_process_computes_what_all_others_do(tmp_path):
    """Discrete TD3 with layer norm did not, in the process that compiled it."""
    environment = {**os.environ, "ENVOLVE_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    first, second = (
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second and first.startswith("0 ")


COMPILES = """
import sys
from envolve.agents.kernels.building.frugal import be_frugal
from envolve.agents.kernels.building.shortest import parts
from envolve.agents.kernels.building.whole import compile_whole
if sys.argv[1] == "whole":
    compile_whole()
    be_frugal()
for job in parts("sac_update").values():
    job()
"""
UPDATES = """
import numpy as np, torch
from envolve.agents.common.hyper import draw
from envolve.agents.kernels.off_policy import update
from envolve.agents.common.population import initial_weights, nets_of
from envolve.agents.common.sections import SACSection
from envolve.envs.task import make_task
task, keys = make_task("Pendulum-v0"), np.arange(2)
for act in ("tanh", "relu", "leakyrelu", "prelu", "identity"):
    hyper = draw(SACSection(hidden_size=37, hidden_layer=2, batch_size=50, activation_fn=act), keys)
    nets = nets_of(update.SAC, task, hyper)
    weights, ones = torch.as_tensor(initial_weights(nets, keys)), torch.ones(2, dtype=torch.int64)
    agents = update.SAC(task, hyper, nets[0], weights, ones)
    step, g = update.CompiledUpdate(agents), torch.Generator().manual_seed(0)
    for number in range(1, 21):
        step(torch.randn(2, 9, 50, generator=g), ones, ones, number * ones, torch.as_tensor(keys), True)
    print(act, agents.rows.params.numpy().tobytes().hex())
assert not update.update_member.stats.cache_misses
"""


@pytest.mark.slow
def test_compiled_as_one_piece_it_computes_the_same_but_for_rounding(tmp_path):
    """As numba compiles it by itself: SAC's update, with every activation. Sums may be taken in another order."""
    seen = []
    for way in ("numba", "whole"):
        environment = {**os.environ, "ENVOLVE_CACHE": str(tmp_path / way), "ENVOLVE_COMPILES": "1"}
        for program in (COMPILES, UPDATES):  # in one process, and loaded by another
            command = [sys.executable, "-c", program, way]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        seen.append(done.stdout)
    own, whole = (dict(line.split() for line in text.splitlines()) for text in seen)
    assert len(own) == 5 and list(own) == list(whole)
    for activation, weights in own.items():
        both = [np.frombuffer(bytes.fromhex(text), np.float32) for text in (weights, whole[activation])]
        np.testing.assert_allclose(*both, rtol=1e-3, atol=1e-5, err_msg=activation)


LOADS = """
if reason is None:
    from envolve.agents.kernels.building.foreman import _check
    from envolve.agents.kernels.building.shortest import parts
    _check(list(parts(sys.argv[1]).values()))
sys.exit(reason)
"""


def test_every_learner_has_kernels_that_its_room_names():
    """And no process of its own looks for one that no room has."""
    steps = {f"{name}_steps" for name in LEARNERS if is_off_policy(name) or name == "ppo"}
    assert {*LEARNERS, *steps, "sac_update", "td3_update", "shaped_ppo", "crl"} == {*kernels()}
    assert {*without_torch.NEED_NONE} <= {*kernels()}
    with pytest.raises(ValueError, match="kernel to compile: found 'ppp', expected one of .*; nearest: 'ppo'"):
        kernels().find("ppp")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*kernels()])
def test_every_learner_is_compiled_from_nothing(tmp_path, name):
    """A crash there is no crash here, only slow: nothing else would say that a learner has lost its kernels. What was
    compiled without torch is what a training with it looks for."""
    asks = "from envolve.agents.kernels.building.ahead import why_not; reason = why_not(sys.argv[1])"
    program = f"import sys; {asks}; {LOADS}"
    environment = {key: value for key, value in os.environ.items() if key != "ENVOLVE_COMPILES"}
    environment["ENVOLVE_CACHE"] = str(tmp_path)
    command = [sys.executable, "-c", program, name]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


STARVED = """
import resource, sys
from envolve.agents.kernels.building import foreman
start = foreman._start
def starved(job):
    def run():
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + 30 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        job()
    return start(run)
foreman._start = starved
sys.exit(foreman.main("sarsa"))
"""


@pytest.mark.slow
def test_a_compiler_without_memory_leaves_the_training_to_the_readable_path(foreman, monkeypatch, caplog):
    """The real one, and a real training after it."""
    monkeypatch.setattr(ahead, "_command", lambda name: [sys.executable, "-c", STARVED])
    task, world = make_task("Cliff", max_steps=8), torch.zeros(1, 1)
    section = LEARNERS["sarsa"].section(train_episodes=2, test_episodes=1)
    arguments = ("sarsa", section, None, task, "real", EnvSection(), world, np.zeros(1, np.int64))
    result = train(*arguments)
    assert "sarsa trains on the PyTorch path" in caplog.text
    assert "sarsa cannot be compiled on this machine" in caplog.text
    assert_same_bytes(result, train(*arguments, backend="torch"))
