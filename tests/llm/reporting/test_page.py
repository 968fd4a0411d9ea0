"""The page of a run of ``envolve write``."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from envolve.llm.reporting import page
from envolve.llm.reporting.page_parts import rows_of
from envolve.outer.page import write
from envolve.outer.page.parts import Chart, Lineage
from envolve.outer.page.reading import Folder
from tests.examples import some_slow
from tests.llm.attempts import evolution
from tests.llm.reporting.runs import HOSTILE, SCRIPT, hostile_run, large_run, write_run
from tests.outer.page.html import Parsed, check_safe


def lineage_of(parsed: Parsed) -> tuple[dict[str, Any], dict[str, Any]]:
    """Nodes by name, details by id, as the page has them."""
    nodes = next(d for d in parsed.data if "nodes" in d)["nodes"]
    packed = next(text for attrs, text in parsed.scripts if attrs.get("class") == "packed")
    return {n["name"]: n for n in nodes}, json.loads(gzip.decompress(base64.b64decode(packed)))


def test_candidates_with_their_code_and_cost(tmp_path: Path) -> None:
    everyone = evolution(4, 5)
    run = write_run(tmp_path / "run", everyone)
    assert page.fits(Folder(run)) and not page.fits(Folder(tmp_path))
    made = page.read(Folder(run))
    assert made.problems == [] and made.title == "Ant: rewards by gpt-a, llama-b"
    assert f"for {len(everyone)} candidates" in made.verdict and "Best so far" in made.verdict
    nodes, details = lineage_of(check_safe(write.html([made])))
    assert len(nodes) == 21 and nodes["human"]["state"] == "human"
    for i in everyone:
        node = nodes[f"i{i.id:03d}"]
        assert node["parents"] == list(i.parents) and node["tokens"] == 1113 and node["usd"] == 0.0123
        assert node["state"] == ("rejected" if i.rejection else "trained" if i.ok else "failed")
        assert details[str(i.id)]["code"] == i.code


@pytest.mark.parametrize("count,size", some_slow([(100, 2_000_000), (1000, 5_000_000)], fast=[(100, 2_000_000)]))
def test_a_run_of_many_candidates_is_a_small_file(tmp_path: Path, count: int, size: int) -> None:
    made = page.read(Folder(large_run(tmp_path / "run", count)))
    text = write.html([made])
    assert len(text.encode()) < size
    nodes, details = lineage_of(check_safe(text))
    assert len(nodes) == len(details) == count + 1
    assert max(len(v) for d in details.values() for v in d["curves"].values()) == 60


def test_a_hostile_model_stays_in_its_place(tmp_path: Path) -> None:
    made = page.read(Folder(hostile_run(tmp_path / "run")))
    text = write.html([made])
    parsed = check_safe(text)
    assert "hacked" not in {name for _, attrs in parsed.tags for name in attrs}
    assert len(text) < 2_000_000  # the line of a million characters is cut
    nodes, details = lineage_of(parsed)
    assert details["0"]["code"].endswith("more characters]") and "\u202e" not in json.dumps(details, ensure_ascii=False)
    assert SCRIPT in details["1"]["code"] and "{{ 7 * 7 }}" in HOSTILE and "{{ 7 * 7 }}" in details["1"]["code"]
    names = [t["name"] for d in parsed.data if "data" in d for t in d["data"] if "name" in t]
    assert not any("<" in name for name in names)  # Plotly reads a few tags in names


def test_what_is_damaged_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", evolution(2, 4))
    lines = (run / "individuals.jsonl").read_text().splitlines()
    (run / "individuals.jsonl").write_text("\n".join([*lines[:3], "{damaged", '{"id": 1}', *lines[3:], '{"torn']))
    (run / "ledger.json").write_text("[1, 2")
    (run / "config.yaml").write_text("a: [1")
    (run / "calls.jsonl").write_bytes(b"\xff\xfe\n")
    made = page.read(Folder(run))
    said = " ".join(made.problems)
    assert "individuals.jsonl: line 4" in said and "line 5 (key 'iteration' is missing)" in said
    assert "ledger.json" in said and "config.yaml" in said and "calls.jsonl" in said
    assert any(isinstance(part, Lineage) and len(part.nodes) == 9 for s in made.sections for part in s.parts)
    check_safe(write.html([made]))


def test_the_last_test_decides(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", evolution(2, 4))

    def entry(id: int, operator: str, score: float, low: float, high: float) -> dict[str, Any]:
        return {"id": id, "operator": operator, "score": score, "interval": [low, high], "agent_scores": [score] * 5}

    best, human = entry(3, "improve", 2.0, 1.8, 2.2), entry(-1, "human", 1.9, 1.7, 2.1)
    content = {"task": "Ant", "score_unit": "m/s", "best": best, "human": human, "finals": [best, human]}
    (run / "result.json").write_text(json.dumps(content))
    made = page.read(Folder(run))
    assert made.state == "complete"
    assert made.verdict.startswith(
        "Candidate i003 scores 2 [1.8, 2.2] m/s with 5 fresh agents, more than the human's shapers "
        "(1.9 [1.7, 2.1]); their intervals overlap; price: "
    )
    part = next(p for s in made.sections for p in s.parts if isinstance(p, Lineage))
    assert part.best == 3


def test_repairs_are_paid_and_tunings_are_drawn(tmp_path: Path) -> None:
    everyone = evolution(1, 3)
    everyone[1].repairs = [{"call": 90, "reply": "", "code": "", "rejection": ("trace", "line 1"), "failure": None}]
    run = write_run(tmp_path / "run", everyone)
    with open(run / "calls.jsonl", "a") as file:
        line = {"index": 90, "sha256": "0", "reply": "r", "tokens": [100, 11], "usd": 0.5}
        file.write(json.dumps(line) + "\n")
    rows = [{"scores": [1.0, None, 3.0], "steps": 9}, {"scores": [None, None, None], "steps": 9}]
    (run / "tune_1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = page.read(Folder(run))
    nodes, _ = lineage_of(check_safe(write.html([made])))
    assert (nodes["i001"]["tokens"], nodes["i001"]["usd"]) == (1113 + 111, 0.0123 + 0.5)
    assert (nodes["i002"]["tokens"], nodes["i002"]["usd"]) == (1113, 0.0123)
    charts = {part.title: part for s in made.sections for part in s.parts if isinstance(part, Chart)}
    mean, best = charts["Candidate 1"].data
    assert mean["y"] == [2.0, None] and best["y"] == [3.0, None] and best["x"] == [1.0, 2.0]
    spent = charts["Best score against money spent"].data[0]["x"]
    assert max(spent) == pytest.approx(sum(0.0123 for _ in everyone) + 0.5)


def test_rows_of_the_tree_do_not_cross_and_may_be_deep() -> None:
    chain = evolution(1, 1500)
    for i in chain:
        i.parents = (i.id - 1,) if i.id else ()
    assert set(rows_of(chain).values()) == {0.0}
    few = evolution(1, 4)
    for i, parents in zip(few, ((), (0,), (0,), ())):
        i.parents = parents
    assert rows_of(few) == {1: 0.0, 2: 1.0, 0: 0.5, 3: 2.0}
