"""benchmarks/searches.py: a cell that is stopped goes on to the same figures; what is censored is said to be."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks import searches
from benchmarks.common import cells
from envolve.outer.config.problem import gtn_section

SMALL = ("--only-tasks", "cliff_rn", "--seeds", "1", "--budget", "700")


def figures(out, name):
    rows = [json.loads(line) for line in (out / cells.CELLS).read_text().splitlines()]
    (row,) = [row for row in rows if row["cell"] == f"cliff_rn-{name}-0"]
    return {k: v for k, v in row.items() if k not in ("seconds", "cpu_seconds")}


def test_cells_are_kept_and_a_stopped_one_goes_on(tmp_path, monkeypatch, capsys):
    assert searches.main(["--out", str(tmp_path / "whole"), *SMALL, "--only-searches", "snes", "random"]) == 0
    shown = capsys.readouterr().out
    assert "| cliff_rn | snes | 0 of 1 | > 700 | censored |" in shown
    calls = iter([False, False, True])
    real = cells.evaluate

    def stops(*arguments):
        if next(calls, False):
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(cells, "evaluate", stops)
    words = ["--out", str(tmp_path / "cut"), *SMALL, "--only-searches", "snes"]
    assert searches.main(words) == 130 and not (tmp_path / "cut" / cells.CELLS).exists()
    monkeypatch.setattr(cells, "evaluate", real)
    assert searches.main(words) == 0
    assert figures(tmp_path / "cut", "snes") == figures(tmp_path / "whole", "snes")
    run = "runs/cliff_rn-snes-0/scores.csv"
    assert (tmp_path / "cut" / run).read_bytes() == (tmp_path / "whole" / run).read_bytes()
    monkeypatch.setattr(cells, "evaluate", lambda *a: pytest.fail("a finished cell is not run again"))
    assert searches.main(words) == 0
    capsys.readouterr()
    assert searches.main([*words[:-4], "--budget", "900", "--only-searches", "snes"]) == 1
    assert "found budget 700, expected 900; choose another --out" in capsys.readouterr().err


def test_medians_with_censored_runs():
    assert searches.interval([5.0])[0] == 5.0 and math.isnan(searches.interval([5.0])[1])
    median, low, high = searches.interval([10, 20, 30, 40, math.inf])
    assert median == 30 and low >= 10 and high == math.inf
    assert searches.interval([math.inf] * 3) == (math.inf,) * 3
    rows = [
        {"task": "cliff_rn", "search": "nes", "seed": i, "budget": 99, "solved": i < 2, "evaluations": 50 + i}
        for i in range(3)
    ]
    (line,) = [x for x in searches.table(rows).splitlines() if x.startswith("| cliff_rn")]
    assert line.startswith("| cliff_rn | nes | 2 of 3 | 51 [50, > 99] | 50, 51, censored |")


def test_refusals_are_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        searches.main(["--seeds", "0"])
    kept = tmp_path / cells.CELLS
    for line, why in (('{"cell": "a", "task": 3}', "a: found another content"), ("[1]", "line 1: found no cell")):
        kept.write_text(f"{line}\n")
        assert searches.main(["--table", "--out", str(tmp_path)]) == 1
        assert f"{kept}: {why}" in capsys.readouterr().err.splitlines()[-1]


def test_a_line_that_was_cut_off_is_computed_again(tmp_path):
    ran = []

    def run(name):
        ran.append(name)
        return {"value": name}

    for _ in range(2):
        cells.work(tmp_path, [("a",), ("b",), ("c",)], run, str)
    path = tmp_path / cells.CELLS
    whole = path.read_bytes()
    assert ran == ["a", "b", "c"] and whole.count(b"\n") == 3
    path.write_bytes(whole[:-5])
    assert [row["value"] for row in cells.results(tmp_path, {"value": str})] == ["a", "b"]
    cells.work(tmp_path, [("a",), ("b",), ("c",)], run, str)
    assert ran[3:] == ["c"] and path.read_bytes() == whole


def test_every_search_has_as_many_worlds():
    for task in searches.TASKS:
        base = searches.load_config(searches.ROOT / searches.TASKS[task].config, searches.TASKS[task].overrides)
        pairs = base.data["agents"]["gtn"]["num_workers"]
        for name in searches.SEARCHES:
            config = searches.load_config(
                searches.ROOT / searches.TASKS[task].config, searches.overrides_of(task, name, 0)
            )
            section = gtn_section(config.data)
            assert searches.worlds_of(name, section)[0] == 2 * pairs
