"""benchmarks/run.py: what it knows, what it refuses, and what it makes of the figures. Nothing is measured here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import run

ROOT = Path(__file__).parents[1]


def test_every_benchmark_is_on_the_list(capsys):
    files = {p.stem for p in (ROOT / "benchmarks").glob("*.py")} - {"__init__", "run"}
    assert run.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == files == set(run.BENCHMARKS)
    assert [line.split()[0] for line in lines if "only with --only" in line] == ["evolve"]


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as stop:
        run.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("--only", "--json", "--list", "per_core"))


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--only", "tabullar"], "did you mean tabular"),
        (["--only", "tabular", "exchange"], "did you mean exchange_overhead"),
        (["--json", "/nowhere/at/all.json"], "expected a file in a folder that exists"),
        (["--json", str(ROOT)], "expected a file in a folder that exists"),
    ],
)
def test_refused_before_anything_runs(argv, words, capsys, monkeypatch):
    monkeypatch.setattr(run, "measure", lambda *args: pytest.fail("a benchmark was started"))
    with pytest.raises(SystemExit) as stop:
        run.main(argv)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


RAW = {  # as the benchmarks write them
    "ddqn_in_se": {"ddqn_in_se": {"plain": {"per_core": 1000.0}, "compiled": {"per_core": 65000.0}}, "cpu": "x"},
    "tabular": {"compile_or_load_s": 1.0, "python.ql.steps_per_s": 2e6, "compiled.ql.steps_per_s": 1e8},
    "exchange_overhead": {"milliseconds_per_generation": 12.5, "all": [12.0, 13.0]},
    "evolve": {"config": "c.yaml", "runs": [{"seconds": s, "solved": s < 50} for s in (30.0, 40.0, 90.0)]},
}


def test_one_table_and_one_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "measure", lambda name, folder: RAW[name])
    assert run.main(["--only", *RAW, "tabular", "--json", str(tmp_path / "out.json")]) == 0
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["ddqn_in_se.compiled.per_core"] == 65000.0
    assert report["tabular.compiled.ql.per_core"] == 1e8
    assert report["exchange_overhead.milliseconds_per_generation"] == 12.5
    assert [report[f"evolve.{k}"] for k in ("runs", "solved", "median_seconds", "most_seconds")] == [3, 2, 40.0, 90.0]
    assert report["raw"] == RAW and {"machine", "versions"} < set(report)
    lines = {tuple(line.split()[:2]): line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert lines["ddqn_in_se", "compiled"][2::4] == ["65,000", "65.0"]
    assert lines["tabular", "compiled.ql"][-1] == "50.0" and lines["tabular", "python.ql"][-1] == "1.0"
    assert lines["exchange_overhead", "milliseconds_per_generation"][-1] == "12.5"


def test_what_fails_is_said_and_the_others_are_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run, "measure", lambda name, folder: None if name == "tabular" else RAW[name])
    assert run.main(["--json", str(tmp_path / "out.json")]) == 1  # without evolve, which must be asked for
    report = json.loads((tmp_path / "out.json").read_text())
    assert set(report["raw"]) == {"ddqn_in_se", "exchange_overhead"}
    assert "tabular" not in capsys.readouterr().out


def test_a_benchmark_that_crashes(tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(run.BENCHMARKS, "nothing_of_this_name", run.Benchmark("crashes"))
    assert run.measure("nothing_of_this_name", tmp_path) is None
    assert "nothing_of_this_name ended with exit code 1" in capfd.readouterr().err
