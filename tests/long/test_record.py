"""What `make test-long` remembers."""

from __future__ import annotations

import json

import pytest

from tests.long import __main__ as long


def row(file, commit, passed):
    return {"file": file, "commit": commit, "passed": passed}


def test_the_last_outcome_at_these_commits_counts(tmp_path, monkeypatch):
    record = tmp_path / "long.jsonl"
    monkeypatch.setattr(long, "RECORD", record)
    assert long.records() == []
    rows = [row("a", "1", True), row("b", "1", False), row("b", "2", True), row("a", "2", False), row("c", "2+", True)]
    record.write_text("\n".join(map(json.dumps, rows)) + '\n{"file": "d", "comm')
    found = long.latest(long.records(), {"1", "2"})
    assert {file: outcome["passed"] for file, outcome in found.items()} == {"a": False, "b": True}
    assert long.latest(long.records(), {"3"}) == {}
    long.append(record, row("e", "2", True))
    assert long.latest(long.records(), {"2"})["e"]["passed"], "a torn line makes room"


@pytest.mark.slow
@pytest.mark.parametrize("body, passed", [("assert True", True), ("assert False", False), (None, False)])
def test_an_outcome_is_recorded_as_it_is(tmp_path, body, passed):
    file = tmp_path / "test_one.py"
    file.write_text("raise OSError" if body is None else f"import pytest\n@pytest.mark.slow\ndef test_it(): {body}\n")
    assert long.run(str(file), "1")["passed"] is passed
