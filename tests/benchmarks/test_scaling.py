"""benchmarks/scaling.py counts what it says: a generation of a few simulated workers, in a real folder."""

from __future__ import annotations

import json

import pytest

from benchmarks import scaling


@pytest.mark.slow
def test_a_generation_is_counted(tmp_path):
    row = scaling.measure(str(tmp_path), workers=3, chunks=6, generations=1, seconds=0.05)
    counted = {k: n for k, n in row["operations"].items() if k != "listdir"}
    heartbeats = counted["open"] - 6 * scaling.FLOOR["open"]  # of the workers, and the master's own
    assert 0 <= heartbeats <= 40
    for kind in ("write", "rename", "unlink"):
        assert 0 <= counted[kind] - 6 * scaling.FLOOR[kind] <= 3
    assert row["wall_s"] >= 2 * 0.05 and row["operations"]["listdir"] >= 2
    assert row["mib_written"] > 6 * 4 * scaling.MEMBERS * scaling.PARAMETERS / 2**20
    assert list(tmp_path.iterdir()) == []


def test_every_operation_takes_the_latency(tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(scaling.time, "sleep", slept.append)
    files = scaling.Counting(str(tmp_path), 0.25)
    files.write("x", b"abc")
    assert files.read("x", 9) == b"abc" and files.read("y", 9) is None
    files.remove("x")
    assert sum(slept) == pytest.approx(0.25 * sum(files.operations.values()))
    assert files.operations == {"open": 3, "write": 1, "rename": 1, "read": 1, "unlink": 1}
    assert files.bytes == {"write": 3, "read": 3}


def test_the_command_writes_what_it_measured(tmp_path, monkeypatch, capsys):
    row = dict.fromkeys(scaling.COLUMNS, 1.0)
    monkeypatch.setattr(scaling, "measure", lambda folder, workers, *args: {**row, "workers": workers})
    assert scaling.main(["--workers", "2", "7", "--json", str(tmp_path / "out.json")]) == 0
    assert [r["workers"] for r in json.loads((tmp_path / "out.json").read_text())["rows"]] == [2, 7]
    assert len(capsys.readouterr().out.splitlines()) == 3
