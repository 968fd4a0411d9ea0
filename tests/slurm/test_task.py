"""One array task: its program, its signals, its exit file; and who gets which CPU of one node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envolve.slurm import worker_group
from envolve.slurm.commands import (
    CONFIG,
    MASTER,
    STUDY,
    WORKER,
    Exit,
    SetupError,
    exit_file,
    kind_of,
    master_command,
    read_exit,
    split_words,
    worker_command,
    workers_command,
    write_exit,
)
from envolve.slurm.cpus import split
from tests.slurm.fake import FakeCluster

ROOT = Path(__file__).parents[2]
YAML = ROOT / "default_config_cartpole_syn_env.yaml"

# stands in for a master: says that it runs, and on SIGTERM saves its state and ends as GTN_master.py does
PROGRAM = """
import os, signal, sys, time
def stop(signum, frame):
    open(sys.argv[1] + ".saved", "a").write("x")
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
with open(sys.argv[1], "a") as mark:  # a file that its finalizer writes out would swallow the SystemExit of stop()
    mark.write(f"{os.getpid()} {sorted(os.sched_getaffinity(0))}\\n")
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:  # a signal just before a long sleep would be heard after it
    time.sleep(0.02)
sys.exit(int(sys.argv[3]))
"""


def program(mark: Path, seconds: float = 60, code: int = 0) -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(mark), str(seconds), str(code)]


def task(run: Path, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "slurm" / "task.py"), "--run-dir", str(run), *arguments]
    outside = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=outside | (environ or {}))


def wait_for(path: Path) -> None:
    end = time.monotonic() + 30
    while not path.exists() or not path.read_text().endswith("\n"):
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.02)


ARRAY = {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "15", "SLURM_RESTART_COUNT": "2"}


def test_time_limit_saves_and_requeues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(tmp_path, monkeypatch)
    cluster.change(tasks={"12_0": ["x", 0, "RUNNING"]})
    mark = tmp_path / "mark"
    process = task(tmp_path, "--role=master", "--", *program(mark), environ=ARRAY)
    wait_for(mark)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(timeout=90) == 130
    assert Path(f"{mark}.saved").read_text() == "x"
    assert cluster.calls("scontrol") == [["requeue", "12_0"]]
    assert read_exit(exit_file(tmp_path, MASTER, 0)) == Exit(130, "time limit", "12_0", 2)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_cancelled_task_is_not_requeued(
    signum: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(tmp_path, monkeypatch)
    mark = tmp_path / "mark"
    process = task(tmp_path, "--role=master", "--", *program(mark), environ=ARRAY)
    wait_for(mark)
    process.send_signal(signum)
    assert process.wait(timeout=30) == 130
    assert Path(f"{mark}.saved").exists() and not cluster["calls"]
    assert read_exit(exit_file(tmp_path, MASTER, 0)) == Exit(130, "cancelled", "12_0", 2)


def test_requeues_are_limited_and_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(tmp_path, monkeypatch)
    cluster.change(broken={"scontrol": "Requested operation not permitted"})
    for limit, words in (("2", "started again 2 times already"), ("3", "Requested operation not permitted")):
        mark = tmp_path / limit
        process = task(tmp_path, "--role=master", f"--max-requeues={limit}", "--", *program(mark), environ=ARRAY)
        wait_for(mark)
        process.send_signal(signal.SIGUSR1)
        assert words in process.communicate(timeout=30)[0] and process.returncode == 130


def test_who_does_not_hear_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    deaf = f"trap '' TERM; echo deaf > {mark}; sleep 60 & wait; wait"
    process = task(tmp_path, "--role=master", "--kill-after=0.3", "--", "sh", "-c", deaf)
    wait_for(mark)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 137
    assert read_exit(exit_file(tmp_path, MASTER, 0)) == Exit(137, "cancelled")


def test_a_complete_master_does_not_run_again(tmp_path: Path) -> None:
    assert task(tmp_path, "--role=master", "--", *program(tmp_path / "a", 0)).wait(timeout=30) == 0
    assert read_exit(exit_file(tmp_path, MASTER, 0)) == Exit(0, "ended")
    assert task(tmp_path, "--role=master", "--", *program(tmp_path / "b", 0)).wait(timeout=30) == 0
    assert (tmp_path / "a").exists() and not (tmp_path / "b").exists()


def test_a_worker_whose_master_has_ended_has_nothing_to_do(tmp_path: Path) -> None:
    write_exit(exit_file(tmp_path, MASTER, 1), Exit(0, "ended"))
    process = task(tmp_path, "--role=worker", "--bohb-id=1", "--worker=2", "--index=5")
    assert "the master has ended" in process.communicate(timeout=30)[0] and process.returncode == 0
    assert read_exit(exit_file(tmp_path, WORKER, 5)) == Exit(0, "not needed any more")
    assert not (tmp_path / "sync").exists()


def test_a_missing_config_is_a_wrong_argument(tmp_path: Path) -> None:
    assert task(tmp_path, "--role=master", "--", "nowhere.yaml").wait(timeout=30) == 2
    assert read_exit(exit_file(tmp_path, MASTER, 0)) == Exit(2, "ended")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"code": "0", "reason": "x"}', '{"code": 0, "colour": 1}'])
def test_a_torn_exit_file_is_no_news(text: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    assert read_exit(tmp_path / "x") is None


# ---------------------------------------------------------------------------------------------------- commands


def test_master_commands(tmp_path: Path) -> None:
    study = tmp_path / "s.yaml"
    study.write_text("config: x.yaml\nspace:\n  a: 1\n")
    assert (kind_of([str(study)]), kind_of([str(YAML)])) == (STUDY, CONFIG)
    program = str(ROOT / "experiments" / "optimize_params.py")
    expected = ["py", program, str(study), "1", "2", "--x", "--run-dir", "/r"]
    assert master_command("py", [str(study), "--x"], 1, 2, Path("/r")) == expected
    tail = ["--bohb-id", "1", "--sync-dir", f"{tmp_path}/sync"]
    words = [str(YAML), "--seed", "{BOHB_ID}"]
    new = ["py", str(ROOT / "GTN_master.py"), str(YAML), "--seed", "1", "--results-dir", f"{tmp_path}/master_1", *tail]
    assert master_command("py", words, 1, 2, tmp_path) == new
    for name in ("early", "late"):
        (tmp_path / "master_1" / name).mkdir(parents=True)
    assert master_command("py", words, 1, 2, tmp_path) == new  # killed before there was anything to go on with
    (tmp_path / "master_1" / "early" / "config.yaml").touch()
    (tmp_path / "master_1" / "early" / "checkpoint.pt").touch()
    (tmp_path / "master_1" / "late" / "config.yaml").touch()
    resumed = ["py", str(ROOT / "GTN_master.py"), "--resume", f"{tmp_path}/master_1/early", *tail]
    assert master_command("py", words, 1, 2, tmp_path) == resumed
    assert master_command("py", ["echo", "{MASTERS}{x}", "{SYNC_DIR}"], 0, 2, Path("/r")) == ["echo", "2{x}", "/r/sync"]
    for study_or_run, own in ((True, "/r"), (False, "/r/master_1")):
        assert worker_command("py", 1, 4, Path("/r"), study_or_run)[-2:] == ["--plugins", own]
        group = workers_command("py", 1, range(2, 4), Path("/r"), study_or_run)
        of_group = worker_group.children_of(worker_group.build_parser().parse_args(group[2:]))
        assert all(child._command()[-2:] == ["--plugins", own] for child in of_group)
    with pytest.raises(SetupError, match="found no command"):
        kind_of([])
    assert split_words(["a", "--", "b", "--", "c"]) == (["a"], ["b", "--", "c"])


@pytest.mark.parametrize("script", ["workers", "masters"])
def test_ids_from_the_array_index(script: str, tmp_path: Path) -> None:
    """BOHB_ID = index / 3 and ID = index % 3 of a worker, BOHB_ID = index of a master, as in the original's scripts."""
    root = tmp_path / "repository"
    (root / "slurm").mkdir(parents=True)
    (root / "slurm" / "task.py").write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    environ = {
        "PATH": os.environ["PATH"],
        "SLURM_SUBMIT_DIR": str(root),
        "ENVOLVE_PYTHON": sys.executable,
        "ENVOLVE_RUN_DIR": "r",
        "SLURM_ARRAY_TASK_ID": "5",
    }
    command = ["bash", str(ROOT / "slurm" / f"{script}.sh"), "c d.yaml", "--seed", "{BOHB_ID}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
    options, words = split_words(json.loads(done.stdout))
    given = dict(zip(options[::2], options[1::2], strict=True))
    ids = ("1", "2", "5") if script == "workers" else ("5", None, "5")
    assert (given["--bohb-id"], given.get("--worker"), given["--index"]) == ids
    assert given["--role"] == script[:-1] and words == ["c d.yaml", "--seed", "{BOHB_ID}"]


# ---------------------------------------------------------------------------------------------------- one node


@given(
    cpus=st.sets(st.integers(0, 300), min_size=1, max_size=70),
    masters=st.integers(1, 9),
    workers=st.none() | st.integers(1, 20),
)
def test_cpus_are_split(cpus: set[int], masters: int, workers: int | None) -> None:
    groups = split(list(cpus), masters, workers)
    assert len(groups) == masters and all(len(g.workers) == (workers or len(g.master)) for g in groups)
    assert set().union(*(w for g in groups for w in g.workers)) == set().union(*(g.master for g in groups)) == cpus
    for group in groups:
        assert group.workers and all(w and w <= group.master for w in group.workers)
        fair(group.master, [set(w) for w in group.workers])
    fair(cpus, [set(g.master) for g in groups])


def fair(cpus: set[int] | frozenset[int], shares: list[set[int]]) -> None:
    """Enough CPUs: disjoint and of equal size but for one. Too few: one each, and none serves two more than another."""
    sizes = [len(s) for s in shares]
    serves = [sum(cpu in s for s in shares) for cpu in cpus]
    assert max(sizes) - min(sizes) <= 1 and max(serves) - min(serves) <= 1
    assert max(serves) == 1 if len(cpus) >= len(shares) else max(sizes) == 1


@pytest.mark.parametrize("arguments", [([], 1, 1), ([0], 0, 1), ([0], 1, 0)])
def test_nothing_to_split(arguments: tuple[list[int], int, int]) -> None:
    with pytest.raises(ValueError, match="expected one at least"):
        split(*arguments)


def node(run: Path, *arguments: str) -> subprocess.Popen[str]:
    """single_node.py whose worker program is a shell script: no torch, so it starts quickly."""
    python = run / "python"
    python.write_text('#!/bin/sh\necho "$$ $*" >> ' + str(run / "workers") + "\nexec sleep 60\n")
    python.chmod(0o755)
    command = [sys.executable, str(ROOT / "slurm" / "single_node.py"), "--run-dir", str(run), "--python", str(python)]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)


def lines(path: Path, count: int) -> list[str]:
    end = time.monotonic() + 30
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.monotonic() < end, f"{path} does not get {count} lines"
        time.sleep(0.02)
    return path.read_text().splitlines()


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_one_node_ends_with_its_masters(tmp_path: Path) -> None:
    """Codes 0 and 2 of two masters: the worst counts, the workers are gone, each master was on CPUs of its own."""
    cpus, workers_file = tmp_path / "cpus", tmp_path / "workers"
    all_run = f'until [ "$(cat {workers_file} | wc -l)" -eq 4 ]; do sleep 0.05; done'
    script = f'echo "{{BOHB_ID}} $(taskset -pc $$)" >> {cpus}; {all_run}; exit $((2 * {{BOHB_ID}}))'
    process = node(tmp_path, "--masters=2", "--workers=2", "--", "sh", "-c", script)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 2, out
    workers = lines(workers_file, 4)
    ids = [" ".join(line.split()[2:4]) for line in workers]
    assert sorted(ids) == ["0 0", "0 1", "1 0", "1 1"]
    assert all(ended(int(line.split()[0])) for line in workers)
    allowed = sorted(os.sched_getaffinity(0))
    expected = [sorted(group.master) for group in split(allowed, 2)]
    for line in lines(cpus, 2):
        assert spread(line.rsplit(": ", 1)[1]) == expected[int(line[0])]


def spread(text: str) -> list[int]:
    """taskset's "0-2,5" -> [0, 1, 2, 5]."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def test_one_node_forwards_signals(tmp_path: Path) -> None:
    marks = [tmp_path / f"mark_{b}" for b in (0, 1)]
    process = node(tmp_path, "--masters=2", "--workers=1", "--", *program(tmp_path / "mark_{BOHB_ID}"))
    for mark in marks:
        wait_for(mark)
    workers = lines(tmp_path / "workers", 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130
    assert all(Path(f"{mark}.saved").read_text() == "x" for mark in marks)
    assert all(ended(int(line.split()[0])) for line in workers)


def test_one_node_starts_again_what_died(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    process = node(tmp_path, "--workers=1", "--", *program(mark))
    worker, master = int(lines(tmp_path / "workers", 1)[0].split()[0]), int(lines(mark, 1)[0].split()[0])
    os.kill(worker, signal.SIGKILL)
    os.kill(master, signal.SIGKILL)
    assert int(lines(tmp_path / "workers", 2)[1].split()[0]) != worker
    assert int(lines(mark, 2)[1].split()[0]) != master
    process.send_signal(signal.SIGINT)
    out = process.communicate(timeout=30)[0]
    assert process.returncode == 130 and "worker 0 of master 0 ended by signal 9; starting it again in" in out


def test_one_node_dies_and_takes_all_along(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    process = node(tmp_path, "--workers=1", "--", *program(mark))
    wait_for(mark)
    lines(tmp_path / "workers", 1)
    process.kill()
    process.wait()
    end = time.monotonic() + 30
    while not Path(f"{mark}.saved").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_one_node_gives_up(tmp_path: Path) -> None:
    process = node(tmp_path, "--max-starts=2", "--workers=1", "--", *program(tmp_path / "mark", 0, 1))
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 1 and "master 0 ended with exit code 1, and was started 2 times; it is given up" in out
    assert len(lines(tmp_path / "mark", 2)) == 2
