"""Who is filmed beside whom: the best (on a tie not the human's), the human's, the worst, and what failed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.experiments import eval_shapers
from envolve.outer.shapers import compare_film
from envolve.outer.shapers.compare_film import HEIGHT, WIDTH, columns_of
from envolve.outer.shapers.report import HUMAN, Outcome


def outcome(name: str, score: float = math.nan, failure: Failure | None = None) -> Outcome:
    scores = [] if math.isnan(score) else [score]
    return Outcome(Candidate(name), None, scores, scores, failure, int(failure is not None), [], [], [], {}, None, None)


def test_best_humans_worst_and_failed() -> None:
    broken = Failure("error", "it divides by zero", "", 3)
    ranking = [outcome(HUMAN, 1.0), outcome("good", 1.0), outcome("fair", 0.5), outcome("bad", 0.1),
               outcome("broken", failure=broken), outcome("worse", failure=broken)]  # fmt: skip
    candidates = [o.candidate for o in reversed(ranking)]
    found = [(c.role, c.outcome.name) for c in columns_of(ranking, candidates)]
    assert found == [("best", "good"), ("human's", HUMAN), ("worst", "bad"), ("failed", "broken")]
    assert all(candidates[c.number] is c.outcome.candidate for c in columns_of(ranking, candidates))
    assert [c.role for c in columns_of(ranking[:1], candidates)] == ["human's"]
    assert [c.role for c in columns_of([outcome("only", 0.3)], [ranking[0].candidate, Candidate("only")])] == ["best"]


def test_a_failure_has_a_tile_with_its_reason() -> None:
    tile = compare_film._words("failed: broken\n\n" + "a long reason " * 40)
    assert tile.shape == (HEIGHT, WIDTH, 3) and (tile.min(2) < 120).sum() > 200


@pytest.mark.slow
def test_a_film_of_three_candidates(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v2", reason="imageio is not installed")
    out = tmp_path / "run"
    words = ["--task", "Cartpole", "--num-envs-per-shaper", "8", "--iterations", "2", "--backend", "torch", "--video",
             "--candidates", "reward_upright", "reward_of_falling", "--run-dir", str(out)]  # fmt: skip
    assert eval_shapers.main(words) == 0
    film = next(p for p in out.iterdir() if p.stem == "compare")
    reader = imageio.get_reader(film)
    first, last = reader.get_data(0), reader.get_data(5)
    columns = len(json.loads((out / "candidates.json").read_text())["candidates"])
    assert first.shape[1] >= columns * WIDTH and first.shape[0] >= 2 * HEIGHT
    assert np.abs(first.astype(int) - last.astype(int)).max() > 40, "something moves"
