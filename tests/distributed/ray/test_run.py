"""A distributed run on Ray, with a stand-in for Ray: the bytes of one process, through programs that die."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from envolve.distributed.engine.limits import CALLS
from envolve.distributed.files.run_folder import DONE, REPLAY, RunSettings
from envolve.distributed.memory.replay_log import ReplayLog
from envolve.distributed.ray import role, run
from envolve.distributed.ray.hub import RayHub, RunHub
from envolve.distributed.ray.programs import Program, asked, programs_of
from envolve.distributed.ray.run import Run
from envolve.experiments import train_distributed
from envolve.outer.checkpoint import RunError
from envolve.outer.exchange.machine import ExchangeError
from envolve.outer.ray import actors
from tests.distributed import toy
from tests.distributed.programs.test_faults import prepare
from tests.distributed.ray.stand_in import Killed, Stand, install
from tests.distributed.toy import results, small


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("expected")
    toy.Run(small(), folder, 2).finish()
    return results(folder)


def go(folder: Path, mode: str = "lockstep", collectors: int = 2, **values: Any) -> str:
    settings = RunSettings(3, collectors, mode)
    if not folder.exists():
        prepare(folder, settings, **values)
    return Run(settings, folder, programs_of(collectors)).to_its_end(lambda: None)


def test_lockstep_gives_the_bytes_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, expected: dict[str, bytes]
) -> None:
    made = install(monkeypatch)
    caplog.set_level("INFO", "envolve")  # which each process sets for itself, and here are all in one
    assert go(tmp_path / "run") == ""
    assert results(tmp_path / "run") == expected and (tmp_path / "run" / DONE).exists()
    assert [stand.cpus for stand in made["RayRole"]] == [1, 1, 1, 1]
    for name in ("train/0", "train/1", "learner", "eval/0"):
        assert list((tmp_path / "run" / name).glob("events.out.tfevents*")), name
    lines = [*Path(tmp_path / "run/logs/learner.log").read_text().splitlines()]
    assert any("iteration 6/6" in line for line in lines) and "it is there: pid " in lines[0]
    assert "evaluation at 18 updates" in (tmp_path / "run/logs/evaluator.log").read_text()
    assert go(tmp_path / "run") == "", "a run that is complete ends at once"


@pytest.mark.parametrize("call", [25, 40])
def test_a_hub_and_a_learner_that_die_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes], call: int
) -> None:
    """The hub comes back from its log, the learner from its checkpoint at the hub, with a folder of its own."""
    install(monkeypatch)
    calls, killed = Counter[str](), []

    def counted(hub: RunHub, name: str, data: bytes) -> bytes:
        calls["all"] += 1
        if calls["all"] == call:
            (stand,) = [s for s in stands if s.cls is RunHub]
            stand.die()
            return b""  # lost
        if name == "sample" and not killed and calls["all"] > call + 10:
            killed.append(name)
            raise Killed
        return answer(hub, name, data)

    answer, stands = RunHub.call, []  # type: ignore[var-annotated]
    monkeypatch.setattr(Stand, "__init__", noting(Stand.__init__, stands))
    monkeypatch.setattr(RunHub, "call", counted)
    assert go(tmp_path / "run") == "" and killed
    assert results(tmp_path / "run") == expected
    assert (tmp_path / "run/session").read_text() == "1\n", "two learners"


def noting(init: Any, stands: list[Stand]) -> Any:
    def noted(self: Stand, *args: Any) -> None:
        stands.append(self)
        init(self, *args)

    return noted


def test_async_hands_out_each_policy_as_often_as_there_are_collectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    assert go(tmp_path / "run", "async", num_iter=12) == ""
    versions = Counter(chunk.version for chunk in ReplayLog(tmp_path / "run" / REPLAY, 1, 14, 1).read())
    assert max(versions.values()) <= 2 and sum(versions.values()) > 12
    assert len(results(tmp_path / "run")) >= 4


def test_a_failure_is_tried_again_and_a_mistake_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes]
) -> None:
    install(monkeypatch)
    failed: list[str] = []

    def run_evaluator(*args: Any) -> None:
        if len(failed) < 2:
            failed.append("")
            raise OSError(28, "No space left on device")
        evaluate(*args)

    evaluate = role.run_evaluator
    monkeypatch.setattr(role, "run_evaluator", run_evaluator)
    assert go(tmp_path / "run") == "" and len(failed) == 2
    assert results(tmp_path / "run") == expected
    monkeypatch.setattr(run, "MOST_FAILURES", 2)
    with monkeypatch.context() as patch:  # failures far apart are not in a row
        patch.setattr(run, "HEALTHY", 0.0)
        failed.clear()
        assert go(tmp_path / "apart") == "" and len(failed) == 2
    monkeypatch.setattr(role, "run_evaluator", lambda *_: 1 / 0)
    assert go(tmp_path / "two") == "evaluator: division by zero; it cannot be kept alive"

    def diverged(*args: Any) -> None:
        raise RunError("the agents have diverged")

    monkeypatch.setattr(role, "run_learner", diverged)
    assert go(tmp_path / "three") == "learner: the agents have diverged"


def test_a_program_without_room_goes_on_without_cpus_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes]
) -> None:
    """Its node is lost, and the others are full."""
    made, start = install(monkeypatch), role.RayRole.run

    def lost(self: role.RayRole) -> bool:
        """Whether this is the first learner, at the end of the run."""
        first = self is made["RayRole"][0].object
        while first and not made["RunHub"][0].ended:
            time.sleep(0.01)
        return first

    def run_unless_lost(self: role.RayRole, *args: Any) -> str:
        return "" if lost(self) else start(self, *args)

    monkeypatch.setattr(role.RayRole, "run", run_unless_lost)
    settings = RunSettings(3, 2)
    prepare(tmp_path / "run", settings)
    begun = Run(settings, tmp_path / "run", programs_of(2))
    begun.placed["learner"].seen -= run.LOST_SECONDS
    monkeypatch.setattr(actors, "cpus_of_nodes", lambda: [3.0])
    assert begun.to_its_end(lambda: None) == ""
    assert [stand.cpus for stand in made["RayRole"]] == [1, 1, 1, 1, 0] and made["RayRole"][0].ended
    assert results(tmp_path / "run") == expected


def test_other_versions_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(run, "versions", lambda *_: {"Python": "2.7"})
    wrong = go(tmp_path / "run")
    assert "node " in wrong and "there and 2.7 here; install the same on all nodes" in wrong and "\n" not in wrong


def test_a_hub_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    prepare(tmp_path / "run", RunSettings(3, 2))
    (tmp_path / "run/run.json").write_text("{}")
    monkeypatch.setattr(RunHub, "hello", lambda _: (_ for _ in ()).throw(OSError("first\nthe last line")))
    with pytest.raises(ExchangeError, match=r"the hub cannot be started on Ray: .*the last line"):
        go(tmp_path / "run")


def test_the_hub_refuses_what_no_program_asks(tmp_path: Path) -> None:
    prepare(tmp_path / "run", RunSettings(3, 2))
    hub = RunHub(str(tmp_path / "run"))
    for name in ("../up", "params.py", "policies/checkpoints/x.pt", "replay/rows_000000000000.log", ""):
        with pytest.raises(ValueError, match="expected a file of the run"):
            hub.keep(name, b"")
    for name in ("../up", "/etc/passwd", "replay/rows_000000000000.log"):
        with pytest.raises(ValueError, match="expected a file of the run"):
            hub.fetch(name)
    assert hub.fetch("learner.pt") is None and hub.fetch("params.py")
    with pytest.raises(ValueError, match="no program of a run"):
        hub.say("../learner", "")
    with pytest.raises(ValueError, match="worker 7, expected 0 to 1"):
        hub.chart("collector", 7, 0, "{}")
    assert set(CALLS) <= set(dir(hub.hub))


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("__init__", (), "the hub refused: __init__: __init__: no method of the hub"),
        ("has", (10**6,), "version: found 1000000, expected an integer from -1 to 6"),
        ("begin", (0,), "the hub refused: begin: "),
    ],
)
def test_a_wrong_call_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, args: tuple[int, ...], text: str
) -> None:
    install(monkeypatch)
    prepare(tmp_path / "run", RunSettings(3, 2))
    hub = RayHub(RunHub(str(tmp_path / "run")))
    with pytest.raises(RunError) as caught:
        hub._call(name, *args)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_programs_share_too_few_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    four = [Program("collector", i, 1) for i in range(4)]
    for room in ([4], [100], [0, 2, 2], [1, 1, 1, 1], [], [0]):
        assert asked(four, room) == [1] * 4, room
    for room, part in (([2], 1 / 2), ([1, 1], 1 / 2), ([1, 2], 1 / 2), ([1], 1 / 4)):
        assert asked(four, room) == [part] * 4, room
    five = [*four, Program("learner", 0, 8)]
    assert asked(five, [12]) == asked(five, [4, 8]) == [1, 1, 1, 1, 8]
    assert asked(five, [11]) == asked(five, [6, 6]) == [1] * 5, "of which one has eight threads"
    monkeypatch.setenv("SAC_TRAIN_CPUS", "3")
    monkeypatch.setenv("SAC_COLLECT_WORKER_CPUS", "2")
    assert [(p.name, p.cpus) for p in programs_of(2)] == [
        ("learner", 3), ("evaluator", 1), ("collector_0", 2), ("collector_1", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--workers-on", "files"], "--workers-on: found 'files', expected here, ray, ray:auto or ray:HOST:PORT"),
        (
            ["--workers-on", "ray", "--processes"],
            "--processes: found it with --workers-on ray, expected --workers-on here",
        ),
    ],
)
def test_wrong_flags_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    monkeypatch.setattr("envolve.outer.ray.address.installed", lambda: True)
    (tmp_path / "p.py").write_text("")
    base = ["--params", str(tmp_path / "p.py"), "--run-dir", str(tmp_path / "run")]
    assert train_distributed.main([*base, *words]) == 2
    err = capsys.readouterr().err
    assert text in err and err.count("\n") == 1 and not (tmp_path / "run").exists()


def test_who_says_that_it_lives_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that runs is not silent, however long it takes; one that has ended neither."""
    made = install(monkeypatch)
    monkeypatch.setattr(role, "BEAT", 0.01)
    monkeypatch.setattr(run, "SECONDS", 0.01)
    monkeypatch.setattr(run, "LOST_SECONDS", 1.0)
    monkeypatch.setattr(run, "PATIENCE", 1.0)
    evaluate, ages = role.run_evaluator, []

    def slow(*args: Any) -> None:
        evaluate(*args)
        time.sleep(2.5)  # the learner has ended by then

    monkeypatch.setattr(role, "run_evaluator", slow)
    settings = RunSettings(3, 2)
    prepare(tmp_path / "run", settings)
    begun = Run(settings, tmp_path / "run", programs_of(2))
    for name in begun.placed:
        begun.placed[name].seen -= 0.5
    assert begun.to_its_end(lambda: ages.append(time.monotonic() - begun.placed["evaluator"].seen)) == ""
    assert len(made["RayRole"]) == 4, "none was started again"
    assert max(ages[-5:]) < 0.5


def test_news_are_waited_for(tmp_path: Path) -> None:
    prepare(tmp_path / "run", RunSettings(3, 2))
    hub = RunHub(str(tmp_path / "run"))
    name = "policies/checkpoints/policy_checkpoint_0000000005.pt"
    assert hub.news(0, 0.0) == hub.news(0, 0.01) == (False, [])
    assert hub.news(1, 60.0) == (False, []), "there are fewer"
    for file, found in ((name, (False, [name])), (DONE, (True, [name]))):
        timer = threading.Timer(0.05, hub.keep, (file, b""))
        timer.start()
        assert hub.news(len(hub.policies()), 60.0) == found
        timer.join()
    with pytest.raises(ValueError, match="no program of a run"):
        hub.alive("collector_x")
