"""The benchmark of equal prices: every arm has a configuration within its budget, the table says what it is made of."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.cells import CELLS
from benchmarks.worlds import equal_price
from benchmarks.worlds.equal_price import ARMS, EXPERTS, TASKS, configuration, results, table, work
from envolve.outer.checkpoint import RunError
from envolve.outer.config import problem


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("arm", ["evolved", "distilled", "both"])
def test_experts_have_what_the_search_leaves(name: str, arm: str) -> None:
    data = configuration(name, arm, 3, 100_000).data
    gtn = problem.gtn_section(data)
    assert data["seed"] == 3 and gtn.num_workers == 8 and not gtn.quit_when_solved
    assert gtn.init == ("random" if arm == "evolved" else "distilled")
    if arm != "evolved":
        spent = problem.expert_section(data).agents * problem.expert(data)[1].train_steps
        assert spent == (50_000 if arm == "both" else 100_000) and problem.expert_section(data).agents == EXPERTS


def row(out: Path, name: str, arm: str, budget: int, seed: int, steps: int) -> dict[str, Any]:
    returns = {"policy": 10.0 * seed} if arm in ("learner", "direct") else {"ppo": 1.0, "greedy": 2.0}
    row = {"task": name, "arm": arm, "budget": budget, "seed": seed, "steps": steps}
    return {**row, "real_steps": budget + seed, "returns": returns}


def test_cells_are_run_once_and_shown_with_their_intervals(tmp_path: Path) -> None:
    tasks = ["CartPole-v0"]
    args = argparse.Namespace(out=tmp_path, seeds=5, budgets=[1000], only_tasks=tasks, only_arms=ARMS, steps=10)
    seen: list[int] = []

    def run(*values: Any) -> dict[str, Any]:
        seen.append(1)
        return row(*values)

    work(args, run)
    work(args, run)
    assert len(seen) == 5 * len(ARMS) == len(results(tmp_path))
    lines = table(results(tmp_path)).splitlines()[2:]
    assert len(lines) == len(ARMS) and lines[0].startswith("| CartPole-v0 | 1,000 | evolved | 5 | 1,002 | ppo 1.0")
    assert "policy 20.0 [" in lines[-1]
    args.steps = 20
    with pytest.raises(RunError, match="found steps 10, expected 20; choose another --out"):
        work(args, run)
    with (tmp_path / CELLS).open("a") as file:
        file.write(json.dumps({"cell": "x", "task": 3}) + "\n")
    with pytest.raises(RunError, match="cells.jsonl: x: found another content"):
        results(tmp_path)


def test_a_failed_seed_is_counted() -> None:
    assert equal_price.figure([1.0, float("nan"), 3.0]).startswith("2.0")
    assert equal_price.figure([float("nan"), 1.0]) == "1.0 (1 failed)"


def test_a_search_whose_experts_spent_everything_still_has_a_world() -> None:
    from types import SimpleNamespace

    def run(steps: int, best: int) -> Any:
        return SimpleNamespace(progress=SimpleNamespace(real_steps=steps, best_generation=best))

    assert [equal_price.exceeded(run(*r), 100) for r in ((150, 0), (150, 1), (50, 1))] == [False, True, False]
