"""The live table of a study: counts, who is out, the best, and when it will end."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from envolve.outer.hpo import study_table
from envolve.outer.hpo.study_table import StudyTable
from tests.outer.hpo.trials import many, record

V = {"agents.gtn.step_size": 0.5, "agents.gtn.mirrored_sampling": True}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """time.monotonic by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(study_table.time, "monotonic", lambda: self.now)


def study(**changes: Any) -> Any:
    budget = SimpleNamespace(unit="generations", least=5.0, most=45.0, eta=3.0)
    values = dict(name="cartpole", backend="bohb", bracket="hyperband", budget=budget)
    return SimpleNamespace(**values | {"full_evaluations": 20.0, "trials": None} | changes)


def test_plain_lines() -> None:
    out = io.StringIO()
    with StudyTable(study(), Console(file=out)) as table:
        r = record(0, (0, 0, 1), V, 45.0, 12.25)
        table.started(r.trial, "NES master 0")
        table.update(r)
        table.update(record(1, (0, 0, 2), V, 45.0, error="Traceback\nRuntimeError: \x1b[2Jworker died\n"))
        table.note("NES master 1 is gone")
    title, first, second, note = out.getvalue().splitlines()
    assert title == "cartpole: bohb, hyperband, generations"
    assert first.startswith("trial 1 of about 20  full evaluations 1.0/20  0_1 (model) at 45 generations: loss 12.25")
    assert "failed: RuntimeError: ?[2Jworker died  best 12.25 (0_1 at 45)" in second
    assert note == "note: NES master 1 is gone"
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_in_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("TERM", "xterm")
    rs = many()
    out = Terminal()
    console = Console(file=out, force_terminal=True, width=width, color_system=None)
    with StudyTable(study(), console, remembered=rs[:40]) as table:
        for r in rs[40:50]:
            table.started(r.trial, "x")
            table.update(r)
        table.started(rs[50].trial, "NES master 7")
    last = out.getvalue().split("cartpole: bohb")[-1].splitlines()  # what stays on the screen
    budgets = {line.split()[0]: line.split()[1:] for line in last if line.split()[:1] in (["5"], ["15"], ["45"])}
    counts = {str(int(b)): sum(r.trial.budget == b for r in rs[:50]) for b in (5.0, 15.0, 45.0)}
    assert {b: int(words[0]) for b, words in budgets.items()} == counts
    text = "\n".join(last)
    assert "trial 50 of about" in text and "NES master 7" in text
    model = sum(r.trial.model_based for r in rs[:50] if r.trial.rung == 0)
    full = sum(r.trial.budget for r in rs[:50]) / 45
    assert f"full evaluations {full:.1f}/20, configurations: {model} model," in text
    best = min((r for r in rs[:50] if r.trial.budget == 45), key=lambda r: r.result.loss)
    rows = [line.split() for line in last[last.index(next(x for x in last if x.startswith(" best "))) + 1 :]]
    assert "…" not in "".join(last[: len(last) - len(rows)])  # nothing is cut off, but for values
    assert rows[0][0] == f"{best.trial.config_id[0]}_{best.trial.config_id[2]}"


@pytest.mark.parametrize(
    "changes, left",
    [
        ({}, "28:30"),  # 1 of 20 full evaluations in 90 s: 19 are left
        ({"trials": 5}, "6:00"),  # 4 trials more, and that comes first
        ({"trials": 5, "full_evaluations": None}, "6:00"),
        ({"full_evaluations": 1.0}, "0:00"),
    ],
)
def test_eta(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], left: str) -> None:
    clock = Clock(monkeypatch)
    with StudyTable(study(**changes), Console(file=io.StringIO())) as table:
        assert table._clock() == "elapsed 0:00  ETA -"
        clock.now += 30
        table.started(record(0, (0, 0, 0), V, 45.0).trial, "NES master 0")  # that took 30 s to start
        clock.now += 90
        table.update(record(0, (0, 0, 0), V, 45.0))
        assert table._clock() == f"elapsed 2:00  ETA {left}"
        clock.now += 60  # nothing ended since: it comes nearer
        minutes, seconds = divmod(max(0, sum(x * y for x, y in zip((60, 1), map(int, left.split(":")))) - 60), 60)
        assert table._clock() == f"elapsed 3:00  ETA {minutes}:{seconds:02}"


def test_what_is_remembered_counts_as_done_but_not_for_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    before = [record(k, (0, 0, k), V, 45.0) for k in range(10)]
    with StudyTable(study(), Console(file=io.StringIO()), remembered=before) as table:
        assert table.share() == 0.5 and table._count() == ("trial 10 of about 20", "full evaluations 10.0/20")
        assert table._clock().endswith("ETA -")
        clock.now += 60
        table.update(record(10, (0, 0, 10), V, 45.0))
        assert table._clock().endswith("ETA 9:00")


def test_a_trial_that_changes_hands_is_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    with StudyTable(study(), Console(file=io.StringIO())) as table:
        trial = record(0, (0, 0, 0), V, 5.0).trial
        table.started(trial, "NES master 0")
        clock.now += 30
        table.started(trial, "NES master 1")
        assert [(who, clock.now - since) for _, who, since in table.out.values()] == [("NES master 1", 30.0)]
