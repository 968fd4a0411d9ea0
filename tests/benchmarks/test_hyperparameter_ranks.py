"""``benchmarks/worlds/hyperparameter_ranks.py``: an interrupted study goes on to the same figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.worlds import hyperparameter_ranks as ranks

CONFIG = ranks.ROOT / "results/hyperparameter_ranks/pendulum_bandits/config.yaml"


def test_no_worse_than_the_worst() -> None:
    np.testing.assert_array_equal(ranks.no_worse(np.array([[1.0, np.nan], [-3.0, 2.0]])), [[1.0, -3.0], [-3.0, 2.0]])


def test_a_set_of_ppo_is_drawn_once_for_its_seed() -> None:
    base = ranks.PPOSection()
    sets = [ranks.ppo_set(base, seed) for seed in (1, 1, *range(2, 50))]
    assert sets[0] == sets[1] and len(set(sets)) > 40
    assert all(3 <= s.ppo_epochs <= 30 and 0.1 <= s.eps_clip <= 0.4 for s in sets)
    assert {s.minibatches for s in sets} == {8, 16, 32, 64, 128}


def test_a_choice_is_worth_what_its_first_sets_return_on_the_task() -> None:
    order, truth = np.array([3.0, 1.0, 9.0, 5.0, 5.0, 2.0, 4.0]), np.array([1.0, -99, 2, 3, 4, -99, 5])
    assert ranks.first(order, truth) == 3.0  # of 2, 3, 4, 5 and 1


def test_a_table_has_the_truth_of_its_folder_or_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    folder = CONFIG.parent
    assert ranks.main(["--out", str(folder), "--table"]) == 0
    assert "| 0.74 [0.54, 0.86] |  | -157 [-278, -149] |" in capsys.readouterr().out
    words = ["--out", str(folder.with_name("pendulum_bandits_by_reward")), "--table"]
    assert ranks.main(words) == 0 and "| 0.87 [0.75, 0.94] |  |  |" in capsys.readouterr().out
    assert ranks.main([*words, "--truth", str(folder / "truth.json")]) == 0
    assert "| 0.87 [0.75, 0.94] | -159 [-182, -145] | -165 [-186, -146] |" in capsys.readouterr().out


def test_sets_that_are_finished_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "SETS", 2)
    monkeypatch.setattr(ranks, "HELD_OUT", 3)
    monkeypatch.setattr(ranks.Study, "search", lambda self, generations: self.begin(0))
    words = [str(CONFIG), "--steps", "20", "--agents", "2", "--generations", "1"]
    assert ranks.main([*words, "--out", str(tmp_path / "whole")]) == 0
    real, trained = ranks.Study.trained, []

    def stops(self: ranks.Study, i: int, kind: str, *rest: Any) -> ranks.Trained:
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(i)
        return real(self, i, kind, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(ranks.Study, "trained", stops)
        assert ranks.main([*words, "--out", str(tmp_path / "cut")]) == 130
    assert trained == [0, 1, 2] and not (tmp_path / "cut" / "truth.json").exists()
    assert ranks.main([*words, "--agents", "3", "--out", str(tmp_path / "cut")]) == 1
    assert ranks.main([*words, "--also", "30", "--out", str(tmp_path / "cut")]) == 0
    whole, cut = (json.loads((tmp_path / name / "truth.json").read_text()) for name in ("whole", "cut"))
    rows = ranks.cells.results(tmp_path / "cut", {"row": str})
    first = next(r for r in rows if (r["row"], r["steps"]) == ("first", 20))
    assert len(first["rewards"]) == len(first["returns"]) == 3 and all(map(np.isfinite, first["rewards"]))
    assert {(r["row"], r["steps"]) for r in rows} >= {("first", 30), ("short", 30), ("again", 400)}
    assert len(whole["returns"]) == 5 and {**whole, "cpu_seconds": 0} == {**cut, "cpu_seconds": 0}
