"""Who is filmed beside whom: the best (on a tie not the human's), the human's, the worst, and what failed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envolve.agents.shaped.training import make_envs
from envolve.envs.shaping.candidate import Candidate, Failure
from envolve.experiments import eval_shapers
from envolve.outer.shapers import compare_film
from envolve.outer.shapers.compare_film import HEIGHT, WIDTH, Column, columns_of
from envolve.outer.shapers.report import HUMAN, Outcome
from envolve.outer.shapers.video import VideoError


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


class Still:
    """A learner that does nothing."""

    def __init__(self, members: int, actions: int) -> None:
        self.shape = (members, 1, actions)

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(self.shape)


def test_each_candidate_that_ran_has_a_film_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imageio = pytest.importorskip("imageio.v2", reason="imageio is not installed")
    monkeypatch.setattr(compare_film, "SECONDS", 0.3)
    broken = outcome("broken", failure=Failure("error", "it divides by zero", "", 3))
    good, human = outcome("good", 1.0), outcome(HUMAN, 1.0)
    envs = make_envs("Cartpole", [Candidate("good"), Candidate(HUMAN)], 1, 0)
    try:
        columns = [Column("", good, 0), Column("human's", human, 1), Column("failed", broken, 2)]
        learner: Any = Still(2, envs.action_sizes[0])
        try:
            found = compare_film.each(tmp_path / "films", envs, learner, columns, 1, 0)
        except VideoError as e:
            pytest.skip(f"no film here: {e}")
    finally:
        envs.task.sim.close()
    assert [p.stem for p in found] == ["good", HUMAN] and len(list((tmp_path / "films").iterdir())) == 2
    first, second = (imageio.get_reader(p).get_data(0) for p in found)
    assert first.shape[:2] == (HEIGHT, WIDTH)
    seen = np.abs(first[: HEIGHT - 30].astype(int) - second[: HEIGHT - 30].astype(int)).mean()
    assert seen < 3, "both begin alike; only the words differ"
