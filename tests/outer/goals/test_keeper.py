"""generations.csv of an evolution of starts and goals."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from envolve.outer.goals.keeper import GENERATIONS, GoalKeeper, GoalRow


def test_names_with_commas_are_one_column_each(tmp_path: Path) -> None:
    keeper = GoalKeeper(tmp_path, ["cell 1,1", "cell 1,2", "x"])
    search: Any = SimpleNamespace(state=SimpleNamespace(to_dict=lambda: {"psi": 0}))
    keeper.search, keeper.history = search, [GoalRow(0, 0.1, 0.2, 0.3, 0.4, 1, (0.5, 0.6, 0.7))]
    keeper._save()
    (row,) = csv.DictReader((tmp_path / GENERATIONS).read_text().splitlines())
    assert row == {
        "generation": "0", "score": "0.1", "plain": "0.2", "perturbed": "0.3", "best": "0.4", "diverged": "1",
        "u cell 1,1": "0.5", "u cell 1,2": "0.6", "u x": "0.7",
    }  # fmt: skip
