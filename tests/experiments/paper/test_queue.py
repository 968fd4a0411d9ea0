"""``envolve paper queue``: the list, its record, what is run again, and what an interruption leaves."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envolve.experiments.paper import run_queue as command
from envolve.experiments.paper.common import queue
from envolve.experiments.paper.common.queue import COMPLETE, FAILED, STOPPED, Experiment, ExperimentRecord
from envolve.outer.checkpoint import RunError
from envolve.outer.config.load import ConfigError

WORDS = ("paper", "inference-time", "default_config_cartpole_syn_env.yaml")


def entry(name: str, *, needs: tuple[str, ...] = (), words: tuple[str, ...] = WORDS) -> str:
    return f"{name}:\n  about: a test\n  command: {json.dumps(list(words))}\n  cpu_hours: 0.1\n" + (
        f"  needs: [{', '.join(needs)}]\n" if needs else ""
    )


def listed(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "queue.yaml"
    path.write_text(text)
    return path


def experiment(name: str = "one", keeps: tuple[str, ...] = ("data/*.json",)) -> Experiment:
    return Experiment(name, "a test", WORDS, 0.1, (), keeps)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for Python: writes its words where an experiment's data are expected. The last word is --results-dir's."""
    path = tmp_path / "python"
    path.write_text(
        '#!/bin/sh\nfor last; do :; done\nmkdir -p "$last/paper/data"\necho "$@" > "$last/paper/data/a.json"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setattr(queue.sys, "executable", str(path))
    return path


def test_the_list_of_the_repository_is_right_and_in_order() -> None:
    found = queue.read_queue(command.QUEUE)
    names = [e.name for e in found]
    assert len(found) > 15 and all(names.index(n) < names.index(e.name) for e in found for n in e.needs)
    assert {e.name for e in queue.chosen(found, ["cliff-heatmap"])} == {"cliff-heatmap", "cliff-rns-2"}
    kept = [pattern for e in found for pattern in e.keeps]
    assert len(kept) == len(set(kept))  # else an experiment would record the data of another


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "found .*, expected names of experiments"),
        ("one: 3", "queue.yaml:1: one: found 3, expected the keys about"),
        (entry("one") + "  cpu_hour: 2\n", "one.cpu_hour: unknown; nearest: cpu_hours"),
        ("one:\n  about: x\n", "one.command: missing"),
        (entry("one", needs=("oen", )) + entry("two"), "one.needs: found 'oen'; nearest: one"),
        (entry("one", needs=("two", )) + entry("two", needs=("one", )), "one, two need each other"),
        (entry("one", words=("paper", "compare-proxy")), "found 'paper compare-proxy'; nearest: paper compare-proxies"),
        (entry("one", words=("worker", "0", "0")), "found 'worker 0'"),
        (entry("one", words=(*WORDS, "--json")), "found --json, expected none"),
        (entry("one") + "  keeps: [../secret]\n", "expected a path below"),
        (entry("one").replace("0.1", "-1"), "found -1, expected a positive number"),
    ],
)  # fmt: skip
def test_a_wrong_list_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        queue.read_queue(listed(tmp_path, text))


def test_the_record_says_what_made_a_file(tmp_path: Path, program: Path) -> None:
    records: dict[str, ExperimentRecord] = {}
    record = queue.compute(experiment(), tmp_path, 1, records)
    assert record.status == COMPLETE and list(record.files) == ["data/a.json"] and record.versions
    assert queue.read_records(tmp_path / "paper") == {"one": record}
    state = [queue.state(experiment(), record, tmp_path / "paper")]
    (tmp_path / "paper/data/a.json").write_text("other")
    state.append(queue.state(experiment(), record, tmp_path / "paper"))
    record.command = ["other"]
    state.append(queue.state(experiment(), record, tmp_path / "paper"))
    assert state == [COMPLETE, queue.DAMAGED, queue.CHANGED]
    assert queue.state(experiment(), None, tmp_path / "paper") == queue.UNRECORDED
    assert queue.state(experiment(), None, tmp_path / "elsewhere") == queue.WAITING
    words = (tmp_path / "paper/data/a.json").parent.parent / "queue.json"
    words.write_text("[1]")
    with pytest.raises(RunError, match="expected what envolve paper queue writes"):
        queue.read_records(tmp_path / "paper")


def test_without_its_data_an_experiment_has_failed(tmp_path: Path, program: Path) -> None:
    records: dict[str, ExperimentRecord] = {}
    with pytest.raises(RunError, match="ended without a file like other"):
        queue.compute(experiment(keeps=("other/*.json",)), tmp_path, 1, records)
    assert records["one"].status == FAILED


def test_what_failed_is_run_again_and_what_needs_it_waits(
    tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = listed(tmp_path, entry("one") + entry("two", needs=("one",)) + entry("three"))
    works = program.read_text()
    program.write_text("#!/bin/sh\nexit 1\n")
    args = command.Args(queue=path, results_dir=tmp_path)
    assert command.work(args) == 1
    out = capsys.readouterr()
    assert "two: not begun, one is not complete" in out.out and "not complete: one, two, three" in out.err
    program.write_text(works)
    assert command.work(args) == 0 and command.work(args) == 0
    assert capsys.readouterr().out.count("complete already") == 3


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_ends_its_experiment_and_says_how_to_go_on(tmp_path: Path, signum: int, warm: None) -> None:
    """The experiment is a real one: a search that would take minutes."""
    words = ("paper", "train-proxy", "default_config_cartpole_syn_env.yaml", "--runs", "1", "--workers", "1")
    path = listed(tmp_path, entry("one", words=words))
    process = subprocess.Popen(
        [sys.executable, "-m", "envolve", "paper", "queue", str(path), "--results-dir", str(tmp_path / "r")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert "about 0.1 CPU hours" in process.stdout.readline()
    until = time.monotonic() + 120
    while not list((tmp_path / "r").rglob("config.yaml")):  # of the experiment, which has begun
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signum)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signum and "the same command goes on" in err and "Traceback" not in err
    assert queue.read_records(tmp_path / "r/paper")["one"].status == STOPPED
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
