"""benchmarks/rewards: cells run once, at equal steps; the pool answers like a mutation; the table says what it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rewards import study
from benchmarks.rewards.pool import Entry, Pool, PoolVetter, reward_alone, texts, written
from benchmarks.rewards.study import ARMS, TASKS, Size, constant, joint, main, table
from envolve.envs.graph.file import GraphFile
from envolve.llm.models.request import Call, Request
from envolve.llm.vetting.vet import Vetted
from tests.llm.test_evolution import graph_file

SIZE = ["--budget", "4", "--iterations", "2", "--envs", "4", "--fresh", "2"]
OPS = ("cos", "sin", "exp", "abs", "neg")


def entries() -> list[Entry]:
    made = [Entry(op, f"reply {op}", f"# {op}\n", graph_file(op, 0.5 + k)) for k, op in enumerate(OPS)]
    for e in made[:2]:
        done = {"inputs": ["pole_angle"], "outputs": [{"node": 0}], "names": ["terminal"],
                "nodes": [{"op": "aten.gt.Scalar", "args": [{"in": 0}, 0.2]}]}  # fmt: skip
        e.graph_file.data["functions"]["compute_terminal"] = done
    return [replace(e, graph_file=GraphFile(e.graph_file.data)) for e in made]


@pytest.fixture
def pooled(monkeypatch) -> None:
    monkeypatch.setattr(study, "load_pool", lambda task, folder: entries())


def cells(out: Path) -> dict[str, dict[str, Any]]:
    return {row["arm"]: row for row in study.finished(out)}


@pytest.mark.slow
def test_arms_spend_the_same_and_a_second_run_does_nothing(tmp_path, pooled, capsys, monkeypatch) -> None:
    arms = ["human", "constant", "longer", "samples", "greedy", "nes", "random", "joint"]
    command = ["--out", str(tmp_path), "--tasks", "Cartpole", "--seeds", "1", *SIZE, "--arms", *arms]
    assert main(command) == 0
    found, steps = cells(tmp_path), Size(4, 2, 4, 2).steps
    assert set(found) == set(arms) and all(c["failure"] is None for c in found.values())
    searched = {arm: c["search_steps"] / steps for arm, c in found.items()}
    assert searched["samples"] == searched["greedy"] == searched["random"] == searched["joint"] == 4
    assert searched["nes"] == 5 and all(searched[arm] == 0 for arm in ("human", "constant", "longer"))
    assert found["longer"]["final_steps"] == 4 * found["human"]["final_steps"] == 4 * 2 * steps
    assert found["human"]["agent_scores"] == found["constant"]["agent_scores"]  # Cartpole's human pays 1
    shown = capsys.readouterr().out
    assert all(shown.count(f"| {arm} |") >= 2 for arm in arms) and "minus the human's" in shown
    monkeypatch.setattr(study, "cell", None)
    assert main(command) == 0 and capsys.readouterr().out == shown[shown.index("| score") :]
    assert main([*command[: -len(arms)], *arms, "--fresh", "3"]) == 1
    assert "found fresh 2, expected 3; choose another --out" in capsys.readouterr().err


def test_an_interrupted_search_goes_on_to_the_same_cell(tmp_path, pooled, remembered, monkeypatch) -> None:
    command = ["--tasks", "Cartpole", "--seeds", "1", *SIZE[2:], "--budget", "8", "--arms", "gp", "random"]
    assert main(["--out", str(tmp_path / "whole"), *command]) == 0
    real, calls = study.judge, []

    def once(*args):
        calls.append(args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(study, "judge", once)  # in the final training
        assert main(["--out", str(tmp_path / "cut"), *command]) == 130
    lines = (tmp_path / "cut/Cartpole/gp/seed_0/individuals.jsonl").read_bytes()
    (tmp_path / "cut/Cartpole/gp/seed_0/individuals.jsonl").write_bytes(lines[: lines.find(b"\n", 2000) + 20])
    assert study.judge is real and main(["--out", str(tmp_path / "cut"), *command]) == 0
    for arm, cell in cells(tmp_path / "whole").items():
        other = cells(tmp_path / "cut")[arm]
        assert {k: v for k, v in cell.items() if k != "cpu_seconds"} == {
            k: v for k, v in other.items() if k != "cpu_seconds"
        }


def asked(index: int, *messages: tuple[str, str]) -> Call:
    return Call(index, Request("pool", messages or (("user", "write"),)))


def test_a_request_with_code_is_answered_by_what_is_most_like_it() -> None:
    pool = Pool(entries(), 3)
    first = [pool.send(asked(k)).text for k in range(5)]
    assert sorted(first) == sorted(e.text for e in pool.entries) and pool.send(asked(5)).text == first[0]
    shown = (("user", "x"), ("assistant", "```python\n# cos\n```"), ("user", "better"))
    answers = {pool.send(asked(k, *shown)).text for k in range(20)}
    assert "reply cos" not in answers and pool.send(asked(7, *shown)) == pool.send(asked(7, *shown))
    (verdict,) = PoolVetter(entries()).vet_all([("reply sin", "i000")])
    assert isinstance(verdict, Vetted) and list(verdict.graph_file["functions"]) == ["compute_reward"]


def test_files_of_controls_and_of_joint_candidates_can_be_loaded() -> None:
    for f in [constant("Cartpole"), *joint("Cartpole", entries(), 0, 8), reward_alone(entries()[0])]:
        assert GraphFile.from_text(f.text()).candidate().shapers
    kinds = [tuple(f["functions"]) for f in joint("Cartpole", entries(), 0, 8)]
    assert ("compute_reward", "compute_terminal") in kinds and ("compute_reward",) in kinds
    assert written([{"param": 0}, {"in": 0}], [0.5]) == [0.5, {"in": 0}]


def test_the_pool_has_replies_for_every_task() -> None:
    assert {task: len(texts(task)) >= 8 for task in TASKS} == dict.fromkeys(TASKS, True)
    assert "human" in ARMS and "constant" in ARMS


def test_the_table_pairs_seeds_and_counts_failures() -> None:
    def row(arm: str, seed: int, score: float | None) -> dict[str, Any]:
        return {"task": "T", "arm": arm, "seed": seed, "score": score, "search_steps": 10, "cpu_seconds": 1.0}

    rows = [row("human", k, float(k)) for k in range(3)] + [row("gp", 0, 1.0), row("gp", 1, 2.0), row("gp", 2, None)]
    scores, gaps, together = table(rows).split("\n\n")
    assert "| score; seeds | T |" in scores and "| human | 1 (" in scores and "| gp | 1.5 (" in scores
    assert scores.endswith("; 3, 1 failed |") and gaps.endswith("| gp | 1 |"), "both differences are 1"
    assert "over no task" in together


def test_all_tasks_together_are_between_the_constant_and_the_human() -> None:
    def row(task: str, arm: str, score: float | None) -> dict[str, Any]:
        return {"task": task, "arm": arm, "seed": 0, "score": score, "search_steps": 10, "cpu_seconds": 1.0}

    rows = [row("A", "constant", -2.0), row("A", "human", 0.0), row("A", "gp", 2.0), row("A", "longer", 1.0)]
    rows += [row("B", "constant", 10.0), row("B", "human", 20.0), row("B", "gp", None), row("B", "longer", 20.0)]
    rows += [row("C", "constant", 1.0), row("C", "human", 1.0), row("C", "gp", 5.0)]  # both controls are equal
    text = table(rows).split("over A, B")[1]
    assert "| human | 1 | - |" in text and "| constant | 0 | 0 of 2 |" in text
    assert "| gp | 2 | 1 of 2 | 1 of 2 | - | 1 |" in text and "| longer | 1.25 (" in text
    assert "1 of 2, 1 equal" in text.split("| longer |")[1]
