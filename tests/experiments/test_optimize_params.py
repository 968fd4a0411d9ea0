"""experiments/optimize_params.py as a user starts it: alone, as several processes, killed, stopped and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from envolve.experiments import optimize_params
from envolve.outer.config.load import load_config
from envolve.outer.hpo import local_masters
from envolve.outer.hpo.study import read_study
from tests.outer.hpo.small import study, write
from tests.outer.small import ROOT, default_sigint

SCRIPT, WORKER = ROOT / "experiments/optimize_params.py", ROOT / "GTN_worker.py"


class Processes(contextlib.ExitStack):
    """Started by name, and ended with the test; what they print lies in <folder>/<name>.out."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.running = folder, {}
        self.callback(self.stop)

    def start(self, name, *command):
        out = self.enter_context(open(self.folder / f"{name}.out", "ab"))
        self.running[name] = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=self.folder,
            stdout=out,
            stderr=out,
            preexec_fn=default_sigint,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return self.running[name]

    def text(self, name):
        return (self.folder / f"{name}.out").read_text()

    def wait(self, name, seconds=240):
        code = self.running[name].wait(seconds)
        assert "Traceback" not in self.text(name), self.text(name)
        return code

    def stop(self):
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def processes(tmp_path):
    with Processes(tmp_path) as p:
        yield p


def outcome(run_dir):
    """All that a search decides: no times, no commands."""
    results = [json.loads(line) for line in (run_dir / "results.json").read_text().splitlines()]
    best = yaml.safe_load((run_dir / "best.yaml").read_text())
    return [[r[0], r[1], r[3], r[4]] for r in results], (run_dir / "configs.json").read_text(), best


def trials(run_dir):
    with contextlib.suppress(OSError):
        return (run_dir / "results.json").read_text().count("\n")
    return 0


def until(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def search(folder, **changes):
    """By one command. -> The folder."""
    with Processes(folder) as p:
        p.start("search", SCRIPT, write(folder, **changes), "--workers", 1, "--run-dir", folder / "run")
        assert p.wait("search") == 0, p.text("search")
    return folder


FEW = {"stop": {"trials": 4}, "budget": {"unit": "generations", "least": 1, "most": 3, "eta": 3}}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return search(tmp_path_factory.mktemp("alone"))


def test_few_trials_on_this_machine(tmp_path, capsys, warm):
    """The search in this process; its NES master and worker in processes of their own."""
    code, out, err = run(capsys, write(tmp_path, **FEW), "--workers", 1, "--run-dir", tmp_path / "run")
    assert code == 0, err
    check_all_that_is_left(tmp_path, out, 4, FEW)
    other = ("--set", "search.seed=7", "--run-dir", tmp_path / "run")
    code, _, err = run(capsys, write(tmp_path, **FEW), *other)
    assert code == 2 and "found another study there" in err
    assert len(outcome(tmp_path / "run")[0]) == 4, "the study that was there has lost nothing"


@pytest.mark.slow
def test_all_on_this_machine(alone):
    check_all_that_is_left(alone, (alone / "search.out").read_text(), 12, {})


def check_all_that_is_left(folder, said, trials, changes):
    run_dir = folder / "run"
    results, _, _ = outcome(run_dir)
    assert len(results) == trials and {budget for _, budget, _, _ in results} == {1.0, 3.0}
    assert f"trial {trials}/{trials}" in said
    assert load_config(run_dir / "best.yaml").data["env_name"] == "Cliff"
    files = {"summary.txt", "study.yaml", "config.yaml", "done", "parallel_coordinates.png", "budget_loss.png"}
    assert files <= {p.name for p in run_dir.iterdir()}
    assert read_study(run_dir / "study.yaml").digest == study(folder, **changes).digest
    assert (run_dir / "runs/0_0/run_0/model.pt").exists()


@pytest.mark.slow
def test_several_masters_and_workers_that_are_killed(alone, processes, tmp_path):
    run_dir, sync = tmp_path / "run", tmp_path / "run/sync"
    path = write(tmp_path)
    for b in (1, 0):
        processes.start(f"worker{b}", WORKER, b, 0, "--sync-dir", sync)
        processes.start(f"master{b}", SCRIPT, path, b, 2, "--run-dir", run_dir)
    until(lambda: trials(run_dir) >= 2)
    for name in ("worker0", "master1"):
        processes.running[name].kill()
        processes.running[name].wait()
    processes.start("worker0", WORKER, 0, 0, "--sync-dir", sync)
    processes.start("master1", SCRIPT, path, 1, 2, "--run-dir", run_dir)
    until(lambda: trials(run_dir) >= 6)
    processes.running["master0"].kill()  # the search itself, and with it NES master 0
    processes.running["master0"].wait()
    processes.start("master0", SCRIPT, path, 0, 2, "--run-dir", run_dir)
    assert [processes.wait(f"master{b}") for b in (0, 1)] == [0, 0]
    assert [processes.wait(f"worker{b}") for b in (0, 1)] == [0, 0], "the workers were told to quit"
    assert outcome(run_dir) == outcome(alone / "run")
    processes.start("late", SCRIPT, path, 1, 2, "--run-dir", run_dir)
    assert processes.wait("late") == 0 and "is complete" in processes.text("late")


@pytest.mark.slow
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_stopped_and_resumed(alone, processes, tmp_path, sig):
    path, run_dir = write(tmp_path), tmp_path / "run"
    search = processes.start("search", SCRIPT, path, "--workers", 1, "--run-dir", run_dir)
    until(lambda: trials(run_dir) >= 3)
    search.send_signal(sig)
    assert processes.wait("search") == 128 + sig
    assert f"--resume {run_dir}" in processes.text("search")
    assert not (run_dir / "done").exists()
    processes.start("again", SCRIPT, "--resume", run_dir, "--workers", 1)
    assert processes.wait("again") == 0 and "resumed after" in processes.text("again")
    assert outcome(run_dir) == outcome(alone / "run")


# -------------------------------------------------------------------------------- without processes


def run(capsys, *args):
    code = optimize_params.main([str(a) for a in args])
    out, err = capsys.readouterr()
    return code, out, err


def test_check_says_what_would_be_searched(tmp_path, capsys):
    code, out, _ = run(capsys, write(tmp_path), "--check", "--set", "search.seed=7")
    assert code == 0 and "seed 7" in out and "1 to 9 generations" in out and "agents.gtn.step_size" in out
    assert [p.name for p in tmp_path.iterdir()] == ["cliff.yaml"]


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        optimize_params.main(["--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("envolve worker 1 1", "--resume", "Exit codes", "BOHB over NES"))


@pytest.mark.parametrize(
    "args, expected",
    [
        ([], "found no STUDY"),
        (["STUDY", 2, 2], "BOHB_ID: found 2, expected less than BOHB_WORKERS, 2"),
        (["STUDY", "--masters", 0], "--masters: found 0, expected at least 1"),
        (["STUDY", "--workers", 0], "--workers: found 0, expected at least 1"),
        (["STUDY", "--resume", "there"], "--resume: found STUDY or --run-dir too"),
        (["--resume", "there"], "--resume: found no study.yaml in there"),
        (["nowhere.yaml"], "nowhere.yaml"),
        (["STUDY", "--set", "search.sed=3"], "did you mean search.seed"),
    ],
)
def test_wrong_arguments(tmp_path, capsys, monkeypatch, args, expected):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path)
    code, _, err = run(capsys, *(path if a == "STUDY" else a for a in args))
    assert code == 2 and expected in err


def test_while_no_nes_master_is_there_it_says_what_starts_and_how_to_start_more(tmp_path, monkeypatch):
    """A GTN_worker.py in the folder of the trials would be told of configurations that it cannot evaluate."""
    advice = []

    def dispatcher(folder, bohb_id, name, **options):
        advice.append(options["advice"](0))
        raise KeyboardInterrupt

    monkeypatch.setattr(local_masters, "Dispatcher", dispatcher)
    path = write(tmp_path)
    assert optimize_params.main([str(path), "--masters", "2", "--run-dir", str(tmp_path / "run")]) == 130
    (said,) = advice
    assert said.startswith("2 NES masters of this search are starting (logs: ") and "GTN_worker" not in said
    command = f"python3 experiments/optimize_params.py {tmp_path}/run/study.yaml 1 3 --run-dir {tmp_path}/run"
    assert said.endswith(command)
    args = optimize_params.tyro.cli(optimize_params.Args, args=command.split()[2:])
    assert args.bohb_id == 1 and optimize_params.read_args(args).digest == read_study(path).digest
