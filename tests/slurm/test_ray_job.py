"""slurm/ray.sbatch: a Ray cluster in an allocation. Nodes are processes of this machine, by a stand-in for srun.

The slow test starts Ray: python -m pytest tests/slurm/test_ray_job.py -m slow -n 0
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from envolve.slurm import ray_job
from envolve.slurm.commands import SetupError, exit_file, read_exit
from tests.outer.ray import local
from tests.outer.small import CLIFF, ROOT, cliff
from tests.outer.test_run import files, undisturbed

SRUN = """#!{python} -IS
import os, signal, subprocess, sys
words = sys.argv[1:]
at = next(i for i, w in enumerate(words) if not w.startswith("-"))
n = int(next(w for w in words if w.startswith("--nodes=")).split("=")[1])
os.sched_setaffinity(0, {{0}})  # a node has one core
nodes = [subprocess.Popen(words[at:]) for _ in range(n)]
signal.signal(signal.SIGTERM, lambda *_: [node.terminate() for node in nodes])
sys.exit(max(node.wait() for node in nodes))
"""
SCONTROL = """#!/bin/sh
echo "$@" >> {calls}
[ "$1" = show ] && printf '127.0.0.1\\n127.0.0.2\\n127.0.0.3\\n'
exit 0
"""
CONFIG = str(ROOT / "default_config_gridworld_reward_env_paper.yaml")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for srun and scontrol, and the variables of a job of three nodes. -> the file of scontrol's calls."""
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    for name, text in (("srun", SRUN.format(python=sys.executable)), ("scontrol", SCONTROL.format(calls=calls))):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    own = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_ID": "77", "SLURMD_NODENAME": "127.0.0.1"}
    own |= {"ENVOLVE_ROOT": str(ROOT), "ENVOLVE_PYTHON": sys.executable, "ENVOLVE_RUN_DIR": str(tmp_path / "run")}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    return calls


def test_the_command_goes_on_when_it_is_repeated(tmp_path: Path) -> None:
    def words(*given: str) -> list[str]:
        command = ray_job.command_of("python", given, tmp_path, "h:1")
        assert command[:3] == ["python", "-m", "envolve"]
        return command[3:]

    there = ["--results-dir", str(tmp_path), "--workers-on", "ray:h:1"]
    assert words("run", "c.yaml", "--seed", "1") == ["run", "c.yaml", "--seed", "1", *there]
    (tmp_path / "c_1").mkdir()
    (tmp_path / "c_1" / "config.yaml").touch()
    assert words("run", "c.yaml", "--seed", "1") == ["run", "--resume", str(tmp_path / "c_1"), *there[2:]]
    assert words("tune", "s.yaml", "--workers", "2") == [
        "tune",
        "s.yaml",
        "--workers",
        "2",
        "--run-dir",
        str(tmp_path),
        *there[2:],
    ]
    assert words("tune", "--resume", "x", "--workers-on={RAY}") == ["tune", "--resume", "x", "--workers-on=ray:h:1"]
    assert words("evaluate", "{RUN_DIR}/model.pt") == ["evaluate", f"{tmp_path}/model.pt"]
    with pytest.raises(SetupError, match="found no command"):
        words()


def test_the_nodes_of_the_job(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ray_job.hosts_of({}) == []
    environ = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURMD_NODENAME": "127.0.0.2"}
    assert ray_job.hosts_of(environ) == ["127.0.0.2", "127.0.0.1", "127.0.0.3"], "this one is the head"
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    assert ray_job.srun([]) == []
    words = ray_job.srun(["a", "b"])
    assert words[0] == "srun" and {"--nodes=2", "--ntasks=2", "--nodelist=a,b", "--cpus-per-task=4"} <= set(words)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SetupError, match="scontrol show hostnames"):
        ray_job.hosts_of(environ)


def test_one_node_listens_on_the_loopback_alone_and_there_is_always_a_token() -> None:
    one, many = ray_job.environment(True), ray_job.environment(False)
    assert one["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0" and "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in many
    assert one["RAY_AUTH_MODE"] == many["RAY_AUTH_MODE"] == "token"
    assert len(one["RAY_AUTH_TOKEN"]) == 64 and one["RAY_AUTH_TOKEN"] != many["RAY_AUTH_TOKEN"]
    assert "--node-ip-address=10.0.0.1" in ray_job.daemon("python", "10.0.0.1:6000", "10.0.0.1", "/tmp/x")
    assert ray_job.own_address("127.0.0.2") == "127.0.0.1"
    with pytest.raises(SetupError, match="expected a node of the job"):
        ray_job.own_address("no.such.host.invalid")


def test_a_node_whose_name_only_slurm_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = tmp_path / "scontrol"
    known = "NodeName=$4 NodeAddr=127.0.0.3 NodeHostName=x"
    scontrol.write_text(f"""#!/bin/sh\n[ "$4" = node-b.invalid ] && echo "{known}"\n""")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(socket, "gethostbyname", unknown)
    assert ray_job.address_of_node("node-b.invalid") == "127.0.0.3"
    assert ray_job.own_address("node-b.invalid") == "127.0.0.1"
    assert ray_job.address_of_node("node-c.invalid") == "node-c.invalid"


def unknown(name: str) -> str:
    raise socket.gaierror(-2, "Name or service not known")


SHOWS = """#!/bin/sh
case "$1 $2" in
  "--oneliner show") echo "JobId=77 JobState={state} ReqNodeList=(null) NodeList=b,c BatchHost={host} NumNodes=2" ;;
  "show hostnames") printf 'b\\nc\\n' ;;
  *) echo "$@" >> {calls} ;;
esac
"""


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize(
    ("state", "host", "lost"), [("RUNNING", "a", True), ("RUNNING", "b", False), ("FAILED", "a", False)]
)
def test_a_job_without_its_first_node_is_requeued_by_another(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool, state: str, host: str, lost: bool
) -> None:
    """Whose daemon SLURM tells to end, or which misses the head."""
    (tmp_path / "bin/scontrol").write_text(SHOWS.format(state=state, host=host, calls=slurm))
    monkeypatch.setattr(ray_job, "HEAD_SECONDS", 600.0 if told else 0.2)
    monkeypatch.setattr(ray_job, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(ray_job, "daemon", lambda *_: ["sleep", "60"])
    address = f"127.0.0.1:{ray_job.free_port('127.0.0.1')}"
    words = ["--run-dir", str(tmp_path), "--address", address, "--kill-after=0.2", "--max-requeues=3"]
    real, asked = ray_job.orphaned, []

    def orphaned(job: str) -> bool:
        asked.append(job)
        found = real(job)
        if not found and not told:  # it goes on, until SLURM ends it
            signal.raise_signal(signal.SIGTERM)
        return found

    monkeypatch.setattr(ray_job, "orphaned", orphaned)
    with signals_kept():
        if told:
            signal.raise_signal(signal.SIGTERM)
        assert ray_job.main(words) == int(lost)
        signal.sigtimedwait({signal.SIGTERM}, 0)
    assert asked == ["77"] * (1 if told or lost else 2)
    assert (slurm.read_text().splitlines() if slurm.exists() else []) == ["requeue 77"] * lost


def test_a_head_that_answers_is_there() -> None:
    address = f"127.0.0.1:{ray_job.free_port('127.0.0.1')}"
    head = ray_job.Head(address, 6.0)
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        assert ray_job.listens("127.0.0.1", int(address.rpartition(":")[2])) and not head.lost()
    assert not ray_job.listens("127.0.0.1", int(address.rpartition(":")[2]))
    assert ray_job.Head(address, -1.0).lost()


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """``node`` blocks signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_without_ray_it_says_what_to_install(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert ray_job.main(["--run-dir", str(tmp_path), "--", "run", CONFIG]) == 2
    assert capsys.readouterr().err == "ray_job.py: found no package ray; pip install 'envolve[ray]'\n"


# ---------------------------------------------------------------------------------------------------------- Ray itself


def processes(mark: Path, word: str = "") -> list[int]:
    """Ids of Ray's processes of a job with this mark whose command has this word."""
    found = local.ray_processes(mark)
    return [pid for pid in found if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]


def until(condition: Any, process: subprocess.Popen[str], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < end, process.communicate()[0]
        time.sleep(0.05)


@pytest.fixture
def ended() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="no ray: pip install 'envolve[ray]'")
def test_a_run_on_three_nodes_through_a_lost_head_and_a_requeue(
    slurm: Path, tmp_path: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch, ended: contextlib.ExitStack
) -> None:
    """The bytes of a run that nothing has disturbed."""
    run_dir, long = tmp_path / "run", "agents.gtn.max_iterations=800"

    def start() -> subprocess.Popen[str]:
        words = ["bash", str(ROOT / "slurm" / "ray.sbatch"), "run", CONFIG, "--set", *CLIFF, long]
        job = subprocess.Popen(words, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        ended.callback(job.wait)
        ended.callback(job.terminate)
        return job

    def rows() -> int:
        return sum(path.read_bytes().count(b"\n") for path in run_dir.glob("*/scores.csv"))

    monkeypatch.setenv(local.MARK, str(tmp_path))
    job = start()
    until(lambda: rows() > 5, job)
    (gcs,) = processes(tmp_path, "gcs_server")
    os.kill(gcs, signal.SIGKILL)  # the head
    until(lambda: set(processes(tmp_path, "gcs_server")) - {gcs}, job)
    done = rows()
    until(lambda: rows() > done, job)
    job.send_signal(signal.SIGUSR1)  # the time limit is near
    out, _ = job.communicate(timeout=120)
    state = read_exit(exit_file(run_dir, "node", 0))
    assert state is not None and "the head of cluster 1 was lost" in out, out
    assert slurm.read_text().splitlines()[-1] == "requeue 77" and state.reason == "time limit", out
    assert processes(tmp_path) == [], "all daemons have ended"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    again = start()
    out, _ = again.communicate(timeout=300)
    assert again.returncode == 0 and "on 3 nodes" in out, out
    (folder,) = [path.parent for path in run_dir.glob("*/config.yaml")]
    assert files(folder) == undisturbed(tmp_path_factory, cliff(long))
    assert processes(tmp_path) == []
