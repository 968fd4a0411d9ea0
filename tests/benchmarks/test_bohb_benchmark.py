"""benchmarks/bohb.py: its functions are least where they are said to be, and everybody pays the same."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("hpbandster", reason="hpbandster is not installed")
pytest.importorskip("optuna", reason="optuna is not installed")
from benchmarks import bohb as benchmark
from benchmarks.bohb import FULL, FUNCTIONS, MOST

BEST = {
    "hartmann6": {f"x{i}": x for i, x in enumerate([0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573])},
    "countingones": {f"{kind}{i}": 1 for kind in "cp" for i in range(8)},
    "styblinski": {"a": -2.903534, "b": -29, "c": 10**-2.903534, "d": 10**-2.903534, "kind": "q", "near": -2.903534,
                   "far": 10**-2.903534},
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_least_where_they_are_said_to_be(name):
    f = FUNCTIONS[name](0)
    assert f.true(BEST[name]) == pytest.approx(f.least, abs=1e-3)
    space = f.space()
    space.seed(0)
    points = [dict(space.sample_configuration()) for _ in range(300)]
    assert min(map(f.true, points)) > f.least
    for budget in (1, 27):
        seen = np.array([f.observe(points[0], budget) for _ in range(3000)])
        bias = 0 if name != "hartmann6" else f.true(points[0], 0.1 * (1 - budget / MOST)) - f.true(points[0])
        assert seen.mean() - f.true(points[0]) == pytest.approx(bias, abs=5 * seen.std() / 3000**0.5)
    assert seen.std() < 1.5


@pytest.mark.parametrize("name", ["ours random", "ours optuna", "optuna", "random"])
def test_everybody_pays_the_same(name):
    f = benchmark.run(name, "styblinski", 0)
    assert FULL * MOST <= f["spent"] < (FULL + 1) * MOST and 0 < f["regret"] < 40 and f["seconds"] > 0


def test_one_table_and_one_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "figures.json"
    argv = ["bohb.py", "--seeds", "2", "--only", "random", "--functions", "hartmann6", "--json", str(file)]
    monkeypatch.setattr("sys.argv", argv)
    benchmark.main()
    figures = json.loads(file.read_text())["hartmann6.random"]
    assert [set(run) for run in figures] == [{"regret", "seconds", "spent"}] * 2
    assert f"{np.mean([run['regret'] for run in figures]):8.3f}" in capsys.readouterr().out


@pytest.mark.slow
def test_hpbandster_runs_in_a_process_of_its_own(monkeypatch):
    found = benchmark.run_apart("hpbandster", "countingones", 0)
    assert FULL * MOST <= found["spent"] < (FULL + 1) * MOST and 0 < found["regret"] < 16
    monkeypatch.setattr(benchmark, "LIMIT", 0.1)
    assert np.isnan(benchmark.run_apart("hpbandster", "countingones", 0)["regret"])
