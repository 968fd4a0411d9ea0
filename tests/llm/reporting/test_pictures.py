"""Scores against candidates and environment steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from envolve.llm.reporting.pictures import points_of, scores_picture
from envolve.llm.search.individual import best_of
from tests.llm.attempts import evolution, human
from tests.llm.reporting.test_lineage import PNG


def tuning(steps: int):
    """What llm/tune.py tells of one."""
    return SimpleNamespace(steps=steps, history=[(steps // 2, 0.5, 1.0), (steps, float("nan"), float("nan"))])


def test_steps_of_a_tuning_come_after_all_candidates():
    individuals = evolution(2, 4)
    for i in individuals:
        i.steps = 10
    individuals[1].steps += 500
    points = points_of(individuals[::-1], {1: tuning(500)})
    assert [p.candidates for p in points] == list(range(1, 9))
    assert [p.steps for p in points] == list(range(10, 90, 10))
    assert [p.individual.id for p in points] == list(range(8))


@pytest.mark.parametrize("kind", ["empty", "all rejected", "one", "many", "tuned"])
def test_a_picture_of_any_evolution(tmp_path: Path, kind: str):
    individuals = evolution(3, 8, islands=2)
    tuned, tunings = [], {}
    if kind in ("empty", "one"):
        individuals = [i for i in individuals if i.ok][: kind == "one"]
    elif kind == "all rejected":
        individuals = [i for i in individuals if i.rejection]
    elif kind == "tuned":
        best = best_of(individuals)
        assert best is not None
        best.steps += 100
        tuned, tunings = [replace(best, score=9.0, tuned={"a": 1.0})], {best.id: tuning(100)}
    path = tmp_path / "scores.png"
    scores_picture(path, individuals, human() if kind != "one" else None, "title", "m/s", tuned, tunings)
    assert path.read_bytes().startswith(PNG)
