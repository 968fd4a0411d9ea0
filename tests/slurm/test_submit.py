"""submit.py as a user calls it, with a fake SLURM on PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envolve.slurm import submit
from envolve.slurm.commands import MASTER, WORKER, Exit, exit_file, write_exit
from tests.slurm.fake import FakeCluster

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "default_config_cartpole_syn_env.yaml"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster(tmp_path, monkeypatch)


def look(run_dir: Path, *arguments: str) -> int:
    return submit.main(["--run-dir", str(run_dir), "--once", *arguments])


START = ("--masters", "2", "--workers", "3", "--", str(CONFIG), "--seed", "{BOHB_ID}")


def test_what_is_submitted(cluster: FakeCluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--partition=cpu", "--time=02:00:00", "--mem=2G", "--cpus=4", "--sbatch=--qos=low", "--max-running=2")
    assert look(run, *options, "--worker-sbatch=--constraint=avx2", *START) == 130
    masters, workers = cluster.calls("sbatch")
    assert "--array=0-1" in masters and "--array=0-5%2" in workers
    for call, cpus in ((masters, 1), (workers, 4)):
        wanted = ("--parsable", "--requeue", "--signal=B:USR1@120", "--partition=cpu", "--time=02:00:00", "--mem=2G",
                  "--qos=low", f"--cpus-per-task={cpus}", "--open-mode=append", "--export=ALL")  # fmt: skip
        assert set(wanted) <= set(call)
    assert ("--constraint=avx2" in workers, "--constraint=avx2" in masters) == (True, False)
    assert str(ROOT / "slurm" / "masters.sh") in masters and str(ROOT / "slurm" / "workers.sh") in workers
    assert cluster["words"] == [str(CONFIG), "--seed", "{BOHB_ID}"]
    environ = cluster["environ"]
    assert environ["ENVOLVE_RUN_DIR"] == str(run) and environ["ENVOLVE_ROOT"] == str(ROOT)
    assert (environ["ENVOLVE_MASTERS"], environ["ENVOLVE_WORKERS_PER_MASTER"]) == ("2", "3")
    assert (run / "slurm" / "log").is_dir()  # SLURM does not make it


def test_from_begin_to_end(cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert look(run, *START) == 130
    cluster.all_run()
    assert look(run) == 130  # without a command: what was begun here
    assert len(cluster.calls("sbatch")) == 2
    # a worker is cancelled; the state says that it was sent long ago
    write_exit(exit_file(run, WORKER, 4), Exit(143, "cancelled"))
    cluster.end(cluster.jobs(WORKER)[4])
    state = run / "slurm" / "state.json"
    content = json.loads(state.read_text())
    for task in content["tasks"]:
        task["sent_at"] -= 1000
    state.write_text(json.dumps(content))
    capsys.readouterr()
    assert look(run) == 130 and look(run) == 130
    said = capsys.readouterr().out
    assert "worker 4 (job 2_4) is gone: CANCELLED exit code 0:15 on node12; exit code of its program: 143" in said
    assert "submitted worker 4 as job 3" in said
    assert "--array=4" in cluster.calls("sbatch")[2]
    assert not exit_file(run, WORKER, 4).exists()  # of the former job
    # the masters end: their workers are let go, and the end is reported
    for b, job in cluster.jobs(MASTER).items():
        write_exit(exit_file(run, MASTER, b), Exit(0, "ended"))
        cluster.end(job)
    assert look(run) == 130
    assert cluster.jobs(WORKER).keys() == {0, 1, 2, 3, 5}  # 4 was still waiting: cancelled
    cluster.change(tasks={})
    assert look(run) == 0
    assert look(run) == 0 and len(cluster.calls("sbatch")) == 3


def test_death_between_sbatch_and_the_state_file(cluster: FakeCluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    look(run, *START)
    state = run / "slurm" / "state.json"
    content = json.loads(state.read_text())
    for task in content["tasks"]:
        task.update(sent=0, job="")
    state.write_text(json.dumps(content))  # as if it had died before it could write down what it sent
    for _ in range(4):
        look(run)
    assert len(cluster.calls("sbatch")) == 2 and not cluster.calls("scancel")


def test_squeue_that_fails_changes_nothing(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    look(run, *START)
    cluster.change(broken={"squeue": "Unable to contact slurm controller"}, tasks={})
    for _ in range(5):
        assert look(run) == 130
    assert len(cluster.calls("sbatch")) == 2
    assert "Unable to contact slurm controller" in capsys.readouterr().out


def test_sbatch_that_fails_is_not_counted(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    cluster.change(broken={"sbatch": "invalid partition specified: gpu"})
    assert look(run, *START) == 2  # the first one: the user's mistake
    assert "invalid partition specified: gpu" in capsys.readouterr().err
    cluster.change(broken={})
    assert look(run, *START) == 130
    tasks = json.loads((run / "slurm" / "state.json").read_text())["tasks"]
    assert [task["sent"] for task in tasks] == [1] * 8


def test_stop_and_go_on(cluster: FakeCluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    look(run, *START)
    assert submit.main(["--run-dir", str(run), "--stop"]) == 0
    assert not cluster["tasks"]
    look(run)
    assert len(cluster["tasks"]) == 8


def test_given_up_until_retry(cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    look(run, *START)
    cluster.all_run()
    write_exit(exit_file(run, MASTER, 1), Exit(2, "ended"))
    cluster.end(cluster.jobs(MASTER)[1])
    for _ in range(3):
        assert look(run) == 130
    assert "master 1 is given up: exit code 2" in capsys.readouterr().out
    mark = exit_file(run, MASTER, 1).with_suffix(".given_up")
    assert mark.exists()  # its workers see this and end
    cluster.change(tasks={})
    write_exit(exit_file(run, MASTER, 0), Exit(0, "ended"))
    assert look(run) == 1 and len(cluster["tasks"]) == 0
    assert look(run, "--retry") == 130
    assert not mark.exists()
    assert cluster.jobs(MASTER).keys() == {1} and cluster.jobs(WORKER).keys() == {3, 4, 5}


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "no run was begun here"),
        (["--masters", "2", "--", str(CONFIG)], "one and the same run"),
        (["--", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
        (["--setup", "nowhere.sh", "--", str(CONFIG)], "found no file nowhere.sh"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], words: str, cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert look(tmp_path / "run", *arguments) == 2
    assert words in capsys.readouterr().err
    assert not cluster["calls"]


STUDY = ROOT / "configs" / "spaces" / "cartpole_syn_env.yaml"


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([str(CONFIG), "--sed", "3"], "found --sed, expected a flag that --help-all lists; nearest: --seed"),
        ([str(CONFIG), "--seed", "x"], "--seed: found 'x', expected a whole number"),
        ([str(CONFIG), "--seed"], "--seed: found nothing, expected a whole number"),
        ([str(CONFIG), "--set", "agents.gtn.max_iteration=3"], "did you mean agents.gtn.max_iterations"),
        ([str(CONFIG), "--set", "agents.gtn.num_workers=-3", "seed=-1"], "(and 1 more)"),
        ([str(STUDY), "--storag", "x"], "found --storag, expected a flag"),
        ([str(STUDY), "--masters", "x"], "--masters: found 'x', expected a whole number"),
        ([str(STUDY), "--set", "stop.trial=3"], "did you mean stop.trials"),
    ],
)
def test_words_that_the_program_would_refuse(
    arguments: list[str], words: str, cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert look(tmp_path / "run", "--", *arguments) == 2
    said = capsys.readouterr().err
    assert words in said and said.startswith("submit.py: ") and said.count("\n") == 1
    assert not cluster["calls"] and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_no_kernel_is_compiled_on_the_node_from_which_jobs_are_sent() -> None:
    """Reading the words of a run does not import its command, which compiles while it imports."""
    code = """
import sys
from pathlib import Path
from envolve.core import interrupt
from envolve.outer import early
early.compile_early = lambda argv: print("compiles")
interrupt._listener = object()
from envolve.slurm.words import check_words
check_words([sys.argv[1], "--workers", "4"], 1, Path("run"), sys.executable)
print("checked")
import envolve.experiments.run
"""
    command = [sys.executable, "-c", code, str(CONFIG)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "checked\ncompiles\n"


def test_words_are_not_checked_for_the_device_here(cluster: FakeCluster, tmp_path: Path) -> None:
    assert look(tmp_path / "run", "--", str(CONFIG), "--set", "device=cuda:99", "mode_is_no_key=1") == 2
    assert look(tmp_path / "run", "--", str(CONFIG), "--set", "device=cuda:99") == 130
    assert look(tmp_path / "study", "--masters", "2", "--", str(STUDY), "--set", "stop.trials=3") == 130


def test_another_run_in_the_same_folder_is_refused(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    look(run, *START)
    assert look(run, "--masters", "3", "--workers", "3", *START[4:]) == 2
    assert "begun with masters 2, found 3" in capsys.readouterr().err
    assert look(run, *START[:-1], "1{BOHB_ID}") == 2
    assert "begun with command" in capsys.readouterr().err


def test_watching_killed_and_started_again(cluster: FakeCluster, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, str(ROOT / "slurm" / "submit.py"), "--run-dir", str(run), "--poll", "0.1"]

    def watch(*arguments: str, looks: int) -> subprocess.Popen[str]:
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end, before = time.monotonic() + 30, len(cluster.calls("squeue"))
        while len(cluster.calls("squeue")) < before + looks:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.05)
        return process

    first = watch(*START, looks=3)
    first.kill()
    first.communicate()
    second = watch(looks=3)
    third = subprocess.run([*command, "--once"], capture_output=True, text=True, check=False)
    assert third.returncode == 2 and "another submit.py watches this run" in third.stderr
    second.terminate()
    assert "the jobs go on" in second.communicate(timeout=30)[1] and second.returncode == 143
    assert len(cluster.calls("sbatch")) == 2 and len(cluster["tasks"]) == 8
    for b in (0, 1):
        write_exit(exit_file(run, MASTER, b), Exit(0, "ended"))
    cluster.change(tasks={})
    last = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert last.returncode == 0 and "all masters are complete" in last.stdout


def test_no_slurm(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "slurm" / "submit.py"), "--run-dir", str(tmp_path), "--", str(CONFIG)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": ""}, check=False)
    assert done.returncode == 2 and "squeue: not found" in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing is left of a run that cannot be"
    done = subprocess.run([*command[:2], "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--workers" in done.stdout


def test_more_tasks_than_an_array_may_have(cluster: FakeCluster, tmp_path: Path) -> None:
    run, size = tmp_path / "run", 5
    cluster.change(max_array=size, max_array_said=size)
    start = ("--masters", "7", "--workers", "2", "--max-running=7", *START[4:])
    assert look(run, *start) == 130
    assert cluster.jobs(MASTER).keys() == set(range(7)) and cluster.jobs(WORKER).keys() == set(range(14))
    arrays = [next(word for word in call if word.startswith("--array=")) for call in cluster.calls("sbatch")]
    assert arrays == ["--array=0-4", "--array=0-1", "--array=0-4%2", "--array=0-4%2", "--array=0-3%2"]
    assert cluster["environ"]["ENVOLVE_FIRST_INDEX"] == "10"
    assert look(run) == 130 and len(cluster.calls("sbatch")) == 5, "all are known again in the queue"
    cluster.end(cluster.jobs(WORKER)[12])
    state = run / "slurm" / "state.json"
    content = json.loads(state.read_text())
    for task in content["tasks"]:
        task["sent_at"] -= 1000
    state.write_text(json.dumps(content))
    assert look(run) == 130 and look(run) == 130
    assert "--array=2%2" in cluster.calls("sbatch")[5] and cluster.jobs(WORKER).keys() == set(range(14))
    assert submit.main(["--run-dir", str(run), "--stop"]) == 0 and not cluster["tasks"]


def test_a_limit_that_arrays_cannot_share_is_refused(
    cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.change(max_array=5, max_array_said=5)
    assert look(tmp_path / "run", "--workers", "14", "--max-running=2", "--", str(CONFIG)) == 2
    assert "--max-running: found 2, expected at least 3" in capsys.readouterr().err and not cluster["tasks"]


@pytest.mark.parametrize("said", [1001, 8])
def test_what_cannot_be_submitted_as_a_whole_is_not_submitted(
    said: int, cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """MaxArraySize is not as it was said, or a part of the workers is refused: no masters are left that wait."""
    run = tmp_path / "run"
    cluster.change(max_array=4, max_array_said=said)
    assert look(run, *START) == 2
    said_then = capsys.readouterr().err
    assert "Invalid job array specification" in said_then and "cancelled what was submitted before: job 1" in said_then
    assert said_then.count("\n") == 1 and not cluster["tasks"]
    tasks = json.loads((run / "slurm" / "state.json").read_text())["tasks"]
    assert [task["sent"] for task in tasks] == [0] * 8
    cluster.change(max_array=1001)
    assert look(run, *START) == 130 and len(cluster["tasks"]) == 8, "the same command in the same folder"


def test_several_workers_per_task(cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seven workers of each of two masters, in threes: three tasks per master, the last with one worker."""
    run, start = tmp_path / "run", ("--masters", "2", "--workers", "7", "--workers-per-task", "3", *START[4:])
    assert look(run, "--cpus=2", "--max-running=7", *start) == 130
    masters, workers = cluster.calls("sbatch")
    assert "--array=0-5%2" in workers and "--cpus-per-task=6" in workers and "--cpus-per-task=1" in masters
    assert cluster["environ"]["ENVOLVE_WORKERS_PER_TASK"] == "3"
    for index, written in (
        (2, "--bohb-id 0 --worker 6 --workers 1 --index 2"),
        (3, "--bohb-id 1 --worker 0 --workers 3 --index 3"),
    ):
        assert written in told("workers.sh", tmp_path, SLURM_ARRAY_TASK_ID=str(index), **cluster["environ"])
    assert look(run, *START) == 2 and "begun with workers per master 7, found 3" in capsys.readouterr().err
    write_exit(exit_file(run, MASTER, 1), Exit(0, "ended"))
    cluster.change(tasks={job: [name, index, "PENDING"] for job, (name, index, _) in cluster["tasks"].items()})
    cluster.end(cluster.jobs(MASTER)[1])
    assert look(run) == 130 and sorted(cluster.jobs(WORKER)) == [0, 1, 2], "those of master 1 are not needed any more"
    assert look(tmp_path / "other", "--max-running=2", *start) == 2
    assert "--max-running: found 2, expected at least 3" in capsys.readouterr().err


def told(script: str, folder: Path, **environ: str) -> str:
    """What a script tells task.py."""
    python = folder / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    own = {"PATH": os.environ["PATH"], "ENVOLVE_ROOT": str(ROOT), **environ, "ENVOLVE_PYTHON": str(python)}
    command = ["bash", str(ROOT / "slurm" / script)]
    return subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout


def test_no_word_on_the_size_of_arrays(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.change(broken={"scontrol": "Access denied"})
    assert look(tmp_path / "run", *START) == 130 and len(cluster.calls("sbatch")) == 2


def test_scripts_count_on_in_later_arrays(tmp_path: Path) -> None:
    """masters.sh and workers.sh: what task.py is told in the array that begins with index 10."""
    environ = {"SLURM_ARRAY_TASK_ID": "3", "ENVOLVE_FIRST_INDEX": "10", "ENVOLVE_WORKERS_PER_MASTER": "4"}
    words = "--role master --bohb-id 13 --index 13 "
    assert words in told("masters.sh", tmp_path, **environ)
    words = "--role worker --bohb-id 3 --worker 1 --workers 1 --index 13 "
    assert words in told("workers.sh", tmp_path, **environ)
